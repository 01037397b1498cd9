import pytest
from torch import nn

from vbdrop.compression.files.attribute_checks import check_names, check_numbers
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import counted_as, replace_modules_
from vbdrop.layers.counted_norm import count_

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


def test_the_features_of_a_head_may_be_set():
    class Heads(nn.Module):
        head_dim = 4

    check_names(Plan(attributes={"": {"head_dim": 3}}), Heads())
    with pytest.raises(ValueError, match="sets 'head_size'"):
        check_names(Plan(attributes={"": {"head_size": 3}}), Heads())


def test_nested_tensors_may_only_be_switched_off():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), 1)
    check_names(Plan(attributes={"": {"use_nested_tensor": 0}}), encoder)
    with pytest.raises(ValueError, match="sets 'use_nested_tensor'"):
        check_names(Plan(attributes={"": {"use_nested_tensor": 1}}), encoder)


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


@pytest.mark.parametrize("module", [nn.BatchNorm2d(5), nn.Linear(3, 2)], ids=["buffers", "matrix"])
def test_what_is_no_norm_over_channels_does_not_count(module):
    plan = Plan(attributes={"0": counted_as("layer", 6, 1)})
    model = nn.Sequential(module)

    def applied():
        check_names(plan, model)
        replace_modules_(plan, model)
        check_numbers(model)

    with pytest.raises(ValueError, match=r"sets '|the norm '0' counts 6 channels|must have a float under one of eps"):
        applied()


@pytest.mark.parametrize(("count", "from_end", "fits"), [(5, 1, True), (9, 3, True), (4, 1, False), (5, 0, False)])
def test_a_norm_counts_its_channels_at_least(count, from_end, fits):
    model = nn.Sequential(count_(nn.LayerNorm(5), "layer", count, from_end))
    if fits:
        check_numbers(model)
        return
    with pytest.raises(ValueError, match=rf"the norm '0' counts {count} channels, on axis {from_end} from the end"):
        check_numbers(model)
