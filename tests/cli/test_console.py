"""Settings from the command line, and how rows are laid out."""

import io

import pytest
import typer
from rich.console import Console

from vbdrop.cli.console import err, grid, out, settings


def test_settings_have_the_type_that_they_look_like():
    assert settings(["a=1", "b=1.5", "c=1e-3", "d=true", "e=unit", "f=[1, 2]", "g=", "h=a=b"]) == {
        "a": 1, "b": 1.5, "c": 1e-3, "d": True, "e": "unit", "f": [1, 2], "g": "", "h": "a=b",
    }  # fmt: skip
    assert settings(["a=True", "b=False", "c=None", "d=null"]) == {"a": True, "b": False, "c": None, "d": None}


@pytest.mark.parametrize("pair", ["kl_weight", "=3", ""])
def test_what_is_no_setting_is_named(pair):
    with pytest.raises(typer.BadParameter, match=f"a setting must be name=value; got '{pair}'"):
        settings([pair])


def test_numbers_stand_on_the_right_and_are_never_broken():
    console = Console(file=io.StringIO(), width=40)
    console.print(
        grid(("layer", "what it is", "weights"), [("fc1", "a rather long name for a layer", "235,200")], left=2)
    )
    lines = console.file.getvalue().splitlines()
    assert any("235,200" in line for line in lines)
    assert max(map(len, lines)) <= 40


@pytest.mark.parametrize("columns", [1, 15, 40])
def test_a_table_loses_nothing_on_a_narrow_terminal(monkeypatch, capsys, columns):
    rows = [("a-rather-long-name", "235,200", "12,345", "94.8", "300 of 784", "100 of 300", "0.123")]
    header = ("layer", "weights", "not zero", "zeros %", "inputs left", "outputs left", "dropout rate")

    def letters(width):
        monkeypatch.setenv("COLUMNS", str(width))
        out().print(grid(header, rows))
        return sorted(letter for letter in capsys.readouterr().out if letter.isalnum())

    assert letters(columns) == letters(200)


@pytest.mark.parametrize("make", [out, err])
def test_brackets_and_colons_are_printed_as_they_are(capsys, make):
    said = "pip install 'vbdrop[export]' runs/[a] [/b] :tada:"
    console = make()
    console.print(said, soft_wrap=True)
    console.print(grid(("a", "why"), [("b", said)]))
    assert sum(said in line for line in "".join(capsys.readouterr()).splitlines()) == 2
