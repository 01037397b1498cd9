"""What every test can rely on."""

import os

import pytest
from hypothesis import settings

from vbdrop.experiments import record_of
from vbdrop.kernels import binding, find_compiler
from vbdrop.train.files import write_json

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def compiler() -> str:
    """The C compiler; where there is none, its tests are skipped, or fail if CI=true asks for all of them."""
    if found := find_compiler():
        return found
    reason = "NOT TESTED: there is no C compiler here (none of $CC, cc, gcc, clang); install gcc"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def switched_on(compiler):
    """The compiled kernels, unless the environment switches them off."""
    if os.environ.get("VBDROP_NATIVE") == "0":
        pytest.skip("NOT TESTED: VBDROP_NATIVE=0 switches the kernels off")
    assert binding.available(), "there is a C compiler, so the kernels must build"


@pytest.fixture
def write_record(tmp_path):
    """Writes the record of a run that has ended, as if it had been made."""

    def write(config, records=tmp_path, *, outcome="finished", **figures):
        record = record_of(config, records)
        record.open(config)
        layers = [
            {"name": "fc1", "weights": 1000, "nonzero": figures.get("nonzero", 100), "inputs": 50, "outputs": 20},
            {"name": "fc2", "weights": 100, "nonzero": 50, "inputs": 20, "outputs": 5},
        ]
        result = {
            "run": config.id, "outcome": outcome, "epochs": config.budget.epochs, "evaluated_on": config.evaluated_on,
            "wrong": 2, "weights": 1100,
            "error": 2.0, "nll": 0.1, "ece": 0.01, "nonzero": 150, "ratio": 10.0, "layers": layers,
            "examples": 5000, "units": [784, 20, 10], "compact_weights": 500, "compact_ratio": 4.0, **figures,
        }  # fmt: skip
        machine = {"machine": {"processor": "Abacus 9"}, "versions": {"torch": "2.13.0"}, "threads": 1}
        write_json(record.folder / "result.json", result)
        write_json(record.folder / "environment.json", {"sessions": [machine]})
        return record

    return write


@pytest.fixture
def write_trials(write_record):
    """Writes the trials that a cell asks for until it is decided: one dict of figures for each setting."""

    def write(book, row, column, figures, *, reference=1.9):
        cell = book.cell(row, column)
        if cell.reference is not None:
            for config in cell.reference.runs:
                write_record(config, book.records, error=reference)
        while not (cell := book.cell(row, column)).decided:
            for trials in filter(None, (cell.screening, cell.trials)):
                for trial, each in zip(trials, figures, strict=True):
                    for config, known in zip(trial.runs, trial.results, strict=True):
                        if known is None:
                            write_record(config, book.records, **each)

    return write
