"""The verbs: each is there, and says the same of itself everywhere."""

import importlib
from importlib.metadata import version

import pytest
import typer

from vbdrop.cli.verbs import VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_for_a_newcomer(vbdrop, verb):
    result = vbdrop(verb, "--help")
    assert result.code == 0
    assert result.out.startswith(f"Usage: vbdrop {verb}")
    assert "--help" in result.out
    command = typer.main.get_command(importlib.import_module(f"vbdrop.cli.{verb}").app)
    assert command.help
    assert all(parameter.help for parameter in command.params), "an option without a word about it"


def test_the_list_of_verbs_is_whole(vbdrop):
    out = vbdrop("--help").out
    assert all(f"  {verb}" in out and summary in out for verb, summary in VERBS.items())


def test_version(vbdrop):
    assert vbdrop("--version").out == f"vbdrop {version('vbdrop')}\n"
