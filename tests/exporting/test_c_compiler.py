import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from vbdrop.exporting.c_compiler import FAST, STRICT, compile_network, header_of, identifier
from vbdrop.exporting.errors import ExportError

HEADER = "#define TWICE_INPUT_SIZE 2\n#define TWICE_OUTPUT_SIZE 2\n#include <stddef.h>\n"
SOURCE = """#include "twice.h"
void twice_predict(const float *x, float *y) { y[0] = 2 * x[0]; y[1] = 2 * x[1]; }
void twice_predict_batch(const float *x, float *y, size_t n) { for (size_t i = 0; i < 2 * n; ++i) y[i] = -x[i]; }
"""


def write(folder, source=SOURCE, header=HEADER):
    (folder / "twice.h").write_text(header)
    (folder / "twice.c").write_text(source)
    return folder / "twice.c"


@pytest.mark.parametrize("options", [STRICT, FAST], ids=["strict", "fast"])
def test_one_sample_and_a_batch_go_to_their_functions(tmp_path, compiler, options):
    network = compile_network(write(tmp_path), options)
    assert network(np.array([[1.0, 2.0]])).tolist() == [[2.0, 4.0]]
    assert network(np.array([[1.0, 2.0], [3.0, 4.0]])).tolist() == [[-1.0, -2.0], [-3.0, -4.0]]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["twice.c", "twice.h"]


def test_a_warning_is_an_error(tmp_path, compiler):
    source = write(tmp_path, SOURCE + "static int unused;\n")
    with pytest.raises(ExportError, match=r"rejects twice\.c:\n.*unused"):
        compile_network(source, STRICT)


def test_a_header_without_sizes_is_refused(tmp_path, compiler):
    with pytest.raises(ExportError, match=r"twice\.h does not define TWICE_INPUT_SIZE"):
        compile_network(write(tmp_path, header="#include <stddef.h>\n"), STRICT)


def test_without_a_compiler_the_message_says_what_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(ExportError, match="cc, gcc and clang"):
        compile_network(write(tmp_path), STRICT)


@pytest.mark.parametrize("name", ["net.c", "9.c", "a b-ü.c", "_.c", "for.c", ".c"])
def test_an_identifier_compiles(tmp_path, compiler, name):
    text = identifier(tmp_path / name)
    assert re.fullmatch("[A-Za-z][A-Za-z0-9_]*", text)
    check = subprocess.run(
        [compiler, "-fsyntax-only", "-xc", "-"], input=f"int {text}_predict;", text=True, check=False
    )
    assert check.returncode == 0


def test_files_of_different_names_have_different_headers():
    names = ["modèle.c", "modéle.c", "mod_le.c", "mod-le.c", 'mod"le.c', "mod?le.c"]
    headers = {header_of(Path("folder") / name) for name in names}
    assert len(headers) == len(names)
    assert {header.parent for header in headers} == {Path("folder")}


def test_what_the_compiler_says_of_a_name_that_is_no_text_is_told(tmp_path, compiler):
    source = tmp_path / os.fsdecode(b"n\xe8t.c")
    source.write_text("no C\n")
    with pytest.raises(ExportError, match="rejects"):
        compile_network(source, STRICT)
