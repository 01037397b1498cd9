"""The binding against the C sources."""

import re
import subprocess

import pytest

from vbdrop.kernels.building import SOURCES
from vbdrop.kernels.signatures import SIGNATURES, load


def test_every_function_of_the_sources_is_bound_with_as_many_arguments():
    text = "".join(file.read_text() for file in SOURCES)
    defined = re.findall(r"^(?:void|double|int|int64_t) (vbdrop_\w+)\(([^)]*)\)", text, flags=re.MULTILINE)
    counts = {name: 0 if arguments.strip() == "void" else arguments.count(",") + 1 for name, arguments in defined}
    assert counts == {name: len(arguments) for name, (arguments, _) in SIGNATURES.items()}


def test_a_library_that_lacks_a_function_is_refused(compiler, tmp_path):
    (tmp_path / "empty.c").write_text("int nothing;\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "empty.so", tmp_path / "empty.c"], check=True)
    with pytest.raises(AttributeError, match="vbdrop_"):
        load(tmp_path / "empty.so")
