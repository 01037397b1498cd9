"""The kernels of a process, in processes of their own: what is in use, and why not."""

import os

import pytest
from tests.processes import run

from vbdrop.kernels.library import in_use, kernels, library

SCRIPT = """
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
import torch, vbdrop
from vbdrop.kernels import in_use
model = torch.nn.Linear(3, 2)
vbdrop.convert_(model, vbdrop.Weights())
(model(torch.ones(1, 3)).sum() + vbdrop.kl(model)).backward()
assert model.log_sigma2.grad.isfinite().all()
print(in_use())
"""


def step(**change):
    """One training step in a process of its own: its exit code, the kernels that it used, and what it logged."""
    done = run(SCRIPT, **({"VBDROP_NATIVE": None} | change))
    return done.code, done.out.strip(), done.error


def test_what_is_in_use_agrees_with_itself(switched_on):
    found = kernels()
    assert found.library is library() is not None
    assert found.path.is_file()
    assert found.reason == ""
    assert in_use() != "none"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"VBDROP_NATIVE": "0"}, "VBDROP_NATIVE=0 switches them off"),
        ({"PATH": "", "CC": ""}, "there is no C compiler (none of $CC, cc, gcc, clang)"),
    ],
)
def test_without_them_training_works_and_the_log_says_why(change, reason):
    code, used, logged = step(**change)
    assert (code, used) == (0, "none"), logged
    assert logged == f"INFO the compiled kernels are not in use: {reason}\n"


def test_a_truncated_library_does_not_end_the_process(compiler, cache, tmp_path):
    """Loading one would: the pages beyond its end are not there."""
    quick = tmp_path / "cc"
    quick.write_text(f'#!/bin/sh\nexec {compiler} "$@" -O0\n')
    quick.chmod(0o755)
    code, used, logged = step(CC=str(quick))
    (built,) = cache.glob("*.so")
    assert (code, logged) == (0, f"INFO the compiled kernels are in use: {built}\n")
    os.truncate(built, 8192)
    code, again, logged = step(CC=str(quick))
    assert (code, again) == (0, used), logged
    assert "its checksum is wrong" in logged
    assert logged.endswith(f"INFO the compiled kernels are in use: {built}\n")


def test_a_compiler_that_makes_something_else_is_no_reason_to_fail(cache, tmp_path):
    wrong = tmp_path / "cc"
    wrong.write_text('#!/bin/sh\nwhile [ $# -gt 1 ]; do [ "$1" = -o ] && echo junk > "$2"; shift; done\n')
    wrong.chmod(0o755)
    code, used, logged = step(CC=str(wrong))
    assert (code, used) == (0, "none"), logged
    assert "WARNING the compiled kernels cannot be used, and training is slower without them: " in logged
