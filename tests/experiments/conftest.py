"""Tiny real runs on the embedded digits, and records that were written by hand."""

from dataclasses import replace

import pytest

from vbdrop.experiments import make_method, record_of, resolve
from vbdrop.experiments.inputs import facts
from vbdrop.train import Budget
from vbdrop.train.files import write_json


@pytest.fixture
def tiny():
    """Makes the settings of a run that takes a second or less."""

    def make(method="vbd-weights", *, units=12, epochs=3, hyper=None, **others):
        names = ("seed", "lr", "evaluate_every", "shrink_every")
        budget = Budget(epochs=epochs, **{key: others.pop(key) for key in names if key in others})
        settings = {"model": "mlp", "model_args": {"units": units}, "data": "digits", "n_train": 300, **others}
        return resolve(make_method(method, hyper or {}), checksum=facts("digits").checksum, budget=budget, **settings)

    return make


@pytest.fixture
def write_record(tmp_path):
    """Writes the record of a run that has ended, as if it had been made."""

    def write(config, records=tmp_path, *, outcome="finished", **figures):
        record = record_of(config, records)
        record.open(config)
        layers = [
            {"name": "fc1", "weights": 1000, "nonzero": figures.get("nonzero", 100)},
            {"name": "fc2", "weights": 100, "nonzero": 50},
        ]
        result = {
            "run": config.id, "outcome": outcome, "epochs": config.budget.epochs, "evaluated_on": config.evaluated_on,
            "error": 2.0, "nll": 0.1, "ece": 0.01, "nonzero": 150, "ratio": 10.0, "layers": layers,
            "units": [784, 20, 10], "compact_weights": 500, "compact_ratio": 4.0, **figures,
        }  # fmt: skip
        machine = {"machine": {"processor": "Abacus 9"}, "versions": {"torch": "2.13.0"}, "threads": 1}
        write_json(record.folder / "result.json", result)
        write_json(record.folder / "environment.json", {"sessions": [machine]})
        return record

    return write


@pytest.fixture
def reseeded():
    return lambda config, seed: replace(config, budget=replace(config.budget, seed=seed))
