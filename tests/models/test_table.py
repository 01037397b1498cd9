"""What every network of the table must do, and the errors of `build`."""

import io
import re

import pytest
import torch
from torch import nn

from vbdrop import models

SMALL = {"mlp": {"units": 12}, "kingma-cnn": {"scale": 0.25}, "vgg": {"width": 0.0625}}
every_network = pytest.mark.parametrize("name", models.MODELS)


def small(name: str, **arguments: int) -> nn.Module:
    torch.manual_seed(0)
    return models.build(name, **SMALL.get(name, {}), **arguments)


def inputs(name: str, batch: int) -> torch.Tensor:
    return torch.rand(batch, *models.MODELS[name].input_shape, generator=torch.Generator().manual_seed(1))


def weights(net: nn.Module) -> int:
    """Count as the pruning papers do: the weights of linear maps, no biases, no normalisation."""
    return sum(m.weight.numel() for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d))


@pytest.mark.parametrize(
    ("name", "arguments", "count"),
    [
        ("mlp", {"units": 100}, 784 * 100 + 2 * 100 * 100 + 100 * 10),
        ("mlp", {"units": 1060}, 784 * 1060 + 2 * 1060 * 1060 + 1060 * 10),
        ("lenet-300-100", {}, 266_200),
        ("lenet-500-300", {}, 545_000),
        ("lenet-5", {}, 430_500),
        ("kingma-cnn", {}, 438_730 - (32 + 64 + 128 + 128 + 10)),
        ("vgg", {}, 14_977_728),
    ],
)
def test_weight_counts_are_the_published_ones(name, arguments, count):
    with torch.device("meta"):
        net = models.build(name, **arguments)
    assert weights(net) == count


def test_parameter_counts_with_biases_are_the_published_ones():
    counts = {"lenet-300-100": 266_610, "lenet-500-300": 545_810, "lenet-5": 431_080, "kingma-cnn": 438_730}
    assert {name: sum(p.numel() for p in models.build(name).parameters()) for name in counts} == counts


@every_network
def test_every_layer_gets_a_gradient(name):
    net = small(name).train()
    nn.functional.cross_entropy(net(inputs(name, 4)), torch.arange(4)).backward()
    for key, parameter in net.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().sum() > 0, key


@every_network
def test_examples_of_a_batch_do_not_mix_in_eval(name):
    net = small(name).eval()
    batch = inputs(name, 3)
    alone = torch.cat([net(image[None]) for image in batch])
    torch.testing.assert_close(net(batch), alone)


@every_network
def test_state_dict_round_trip(name):
    net, other = small(name).eval(), models.build(name, **SMALL.get(name, {})).eval()
    buffer = io.BytesIO()
    torch.save(net.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True))
    assert torch.equal(net(inputs(name, 2)), other(inputs(name, 2)))


@every_network
def test_export_with_a_dynamic_batch(name):
    net = small(name).eval()
    program = torch.export.export(net, (inputs(name, 2),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for batch in (1, 5):
        torch.testing.assert_close(program.module()(inputs(name, batch)), net(inputs(name, batch)))


@every_network
def test_classes_is_the_number_of_outputs(name):
    assert small(name, classes=7).eval()(inputs(name, 1)).shape == (1, 7)


@pytest.mark.parametrize("name", ["resnet", ["mlp"], None])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(ValueError, match=rf"`name` must be one of mlp, .*, vgg; got {re.escape(repr(name))}"):
        models.build(name)


def test_an_argument_of_another_network_is_refused():
    with pytest.raises(ValueError, match=r"'scale': 2.* do not fit the network 'mlp'"):
        models.build("mlp", scale=2)
