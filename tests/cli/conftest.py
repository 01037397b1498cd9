"""The command line in this process."""

import json
from typing import NamedTuple

import pytest

from vbdrop.cli.app import main


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def vbdrop(capsys, monkeypatch):
    """Runs a command line in this process."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        return Said(caught.value.code, *capsys.readouterr())

    return run


@pytest.fixture
def tiny(tmp_path):
    """The options of a run that takes a second or less."""
    network = ("--model", "mlp", "--model-arg", "units=12", "--examples", 300)
    return (*network, "--epochs", 3, "--records", tmp_path / "runs")
