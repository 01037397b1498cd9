"""What every verb has in common: exit codes, errors in one line, and a quick start."""

import subprocess
import sys

import pytest

from vbdrop.cli.app import main
from vbdrop.data import DataError


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("tabel", "4"), "vbdrop: No such command 'tabel'. Did you mean 'table'? (try vbdrop --help)"),
        (("--speed",), "vbdrop: No such option: --speed (try vbdrop --help)"),
        (("train", "plain", "--epochs", "many"), "vbdrop train: Invalid value for '--epochs'"),
        (("table", "6"), "`number` must be that of a table of the paper, 1 to 5; got 6."),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(vbdrop, arguments, said):
    result = vbdrop(*arguments)
    assert result.code == 2
    assert said in result.err
    assert result.err.count("\n") == 1
    assert result.out == ""


def test_what_fails_is_one_line_and_exit_code_1(vbdrop, tmp_path):
    result = vbdrop("train", "plain", "--data", "mnist", "--data-dir", tmp_path)
    assert result.code == 1
    assert result.err.startswith("vbdrop: MNIST is not in ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err


def test_debug_shows_where_it_happened(tmp_path):
    with pytest.raises(DataError, match="MNIST is not in") as caught:
        main(["train", "plain", "--data", "mnist", "--data-dir", str(tmp_path), "--debug"])
    assert any("sources.py" in str(entry.path) for entry in caught.traceback)


def test_an_error_that_says_nothing_is_said_with_its_kind(vbdrop, monkeypatch):
    def fail(arguments):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("vbdrop.cli.app._run", fail)
    result = vbdrop("methods")
    assert (result.code, result.err) == (1, "vbdrop: ZeroDivisionError: division by zero (--debug shows where)\n")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from vbdrop.cli.app import main\n"
        "try: main([])\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "See it work, in two minutes, on embedded digits." in done.stdout


@pytest.mark.parametrize(
    ("package", "verb", "said"),
    [
        ("typer", "methods", "the command line needs typer and rich: pip install 'vbdrop[cli]'"),
        ("matplotlib", "report", "the report needs matplotlib and jinja2: pip install 'vbdrop[report]'"),
    ],
)
def test_without_the_extra_it_says_what_to_install(package, verb, said):
    code = f"import sys; sys.modules['{package}'] = None; from vbdrop.cli.app import main; main(['{verb}'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"vbdrop: {said}\n"
