import subprocess

import pytest

from vbdrop.exporting.c_kernels import _KERNELS, kernel_sources

INCLUDES = "#include <math.h>\n#include <stdint.h>\n"


@pytest.mark.parametrize("name", list(_KERNELS))
def test_a_kernel_comes_with_what_it_needs(tmp_path, compiler, name):
    texts = kernel_sources({(name, "uint8_t" if "{index}" in _KERNELS[name].source else "")})
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-fsyntax-only", "-xc", "-"]
    source = INCLUDES + "\n".join(texts)
    outcome = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_only_what_is_called_is_written_and_only_once():
    texts = kernel_sources({("sparse_planes", "uint8_t"), ("sparse_planes", "uint16_t"), ("dense_planes", "")})
    text = "\n".join(texts)
    assert text.count("static void add_four(") == 1
    assert text.count("static void sparse_planes_uint8_t(") == 1
    assert text.count("static void sparse_planes_uint16_t(") == 1
    assert "softmax" not in text
    assert kernel_sources(set()) == []
