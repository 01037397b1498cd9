"""The public names: a name that is added or taken away is a decision, so it is written here too."""

import importlib
import pkgutil
from types import ModuleType

import pytest

import vbdrop

PUBLIC = [  # sorted as vbdrop.__all__: capitals first
    "ELBO",
    "Prediction",
    "Rates",
    "Target",
    "Units",
    "Warmup",
    "Weights",
    "apply_plan_",
    "compress",
    "convert_",
    "deterministic_",
    "export",
    "freeze_dead_",
    "kl",
    "load",
    "measure",
    "param_groups",
    "predict",
    "rates",
    "recalibrate_",
    "register_layer",
    "register_rule",
    "sampling",
    "scalars",
    "shrink",
    "sweep",
]


def test_the_public_names_are_these():
    assert sorted(vbdrop.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(vbdrop))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_resolves_and_is_described(name):
    assert getattr(vbdrop, name).__doc__


def test_no_room_hides_a_public_name():
    """Importing `vbdrop.x` binds the module to the name `x` of the package, over a public function of that name."""
    for module in pkgutil.iter_modules(vbdrop.__path__, "vbdrop."):
        importlib.import_module(module.name)
    assert [name for name in PUBLIC if isinstance(getattr(vbdrop, name), ModuleType)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = vbdrop.no_such_name
