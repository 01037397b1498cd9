import pytest
from torch import nn

from vbdrop.compression.files.attribute_checks import check_names, check_numbers
from vbdrop.compression.planning.plan import Plan

NET = nn.Sequential(
    nn.Conv2d(4, 6, 3, groups=2), nn.BatchNorm2d(6), nn.ConvTranspose2d(6, 4, 2, groups=2), nn.Linear(3, 2)
)


@pytest.mark.parametrize(
    ("path", "attribute"),
    [("0", "in_channels"), ("0", "groups"), ("1", "num_features"), ("2", "out_channels"), ("3", "in_features")],
)
def test_numbers_of_units_may_be_set(path, attribute):
    check_names(Plan(attributes={path: {attribute: 1}}), NET)


@pytest.mark.parametrize(
    ("path", "attribute"), [("3", "training"), ("3", "forward"), ("3", "groups"), ("1", "eps"), ("", "in_features")]
)
def test_nothing_else_may_be_set(path, attribute):
    with pytest.raises(ValueError, match=f"sets '{attribute}' of the module '{path}'"):
        check_names(Plan(attributes={path: {attribute: 1}}), NET)


def test_the_module_must_be_there():
    with pytest.raises(AttributeError):
        check_names(Plan(attributes={"9": {"in_features": 1}}), NET)


@pytest.mark.parametrize(
    ("kind", "arguments", "attribute"),
    [
        (nn.Linear, (3, 2), "in_features"),
        (nn.Linear, (3, 2), "out_features"),
        (nn.Conv2d, (4, 6, 3, 1, 0, 1, 2), "in_channels"),
        (nn.Conv2d, (4, 6, 3, 1, 0, 1, 2), "out_channels"),
        (nn.Conv2d, (4, 6, 3, 1, 0, 1, 2), "groups"),
        (nn.ConvTranspose1d, (4, 6, 3), "in_channels"),
        (nn.ConvTranspose1d, (4, 6, 3), "out_channels"),
        (nn.BatchNorm1d, (5,), "num_features"),
    ],
)
def test_numbers_must_be_those_of_the_tensors(kind, arguments, attribute):
    check_numbers(NET)
    layer = kind(*arguments)
    check_numbers(nn.Sequential(layer))
    setattr(layer, attribute, getattr(layer, attribute) + 1)
    with pytest.raises(ValueError, match="the module '0' has"):
        check_numbers(nn.Sequential(layer))


def test_the_bias_must_fit_the_weight():
    layer = nn.Linear(3, 2)
    layer.bias = nn.Parameter(layer.bias[:1].detach())
    with pytest.raises(ValueError, match="has out_features=2; its tensors have 1"):
        check_numbers(layer)
