"""The wheel in an environment without the extras: built from the source distribution, installed and used."""

import pytest
from tests import stress
from tools.check_wheel import check


@pytest.mark.stress
@pytest.mark.skipif(
    not stress.count(sample=0, full=1), reason="takes minutes and installs torch: `make stress` runs it"
)
def test_the_package_works_without_its_extras(tmp_path, compiler):
    assert check(tmp_path).startswith("vbdrop works without its extras: ")
