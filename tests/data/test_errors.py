import sys

import pytest

from vbdrop.data import DataError
from vbdrop.data.cifar10 import read_pngs


def test_a_missing_extra_names_the_line_that_installs_it(tmp_path, write_cifar_pngs, monkeypatch):
    write_cifar_pngs(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)  # what Python itself does for a module that cannot be had
    with pytest.raises(DataError, match=r"reading PNG files needs PIL: pip install 'vbdrop\[data\]'"):
        read_pngs(tmp_path)
