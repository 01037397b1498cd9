"""Tiny real runs on the embedded digits."""

from dataclasses import replace

import pytest

from vbdrop.experiments import make_method, resolve
from vbdrop.experiments.inputs import facts
from vbdrop.train import Budget


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
def reseeded():
    return lambda config, seed: replace(config, budget=replace(config.budget, seed=seed))
