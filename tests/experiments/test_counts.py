"""Units that are left, against every path through the network."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from vbdrop.analysis.graph import trace
from vbdrop.compression import compress
from vbdrop.experiments import LayerCount, count, units
from vbdrop.models import MODELS, LeNet5, build


def masked(*sizes: int, density: float, seed: int) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    with torch.no_grad():
        for layer in layers:
            layer.weight.mul_(torch.rand(layer.weight.shape, generator=generator) < density)
    return nn.Sequential(*layers)


CHAIN = trace(masked(5, 4, 3, 2, density=1, seed=0).eval(), (torch.zeros(2, 5),))
IMAGES = torch.zeros(2, 1, 28, 28)


def counted(network: nn.Module, inputs: torch.Tensor = IMAGES) -> list[LayerCount]:
    return count(network, trace(network.eval(), (inputs,)))


@given(density=st.floats(0, 1), seed=st.integers(0, 10_000))
def test_a_unit_is_alive_if_a_path_goes_through_it(density, seed):
    network = masked(5, 4, 3, 2, density=density, seed=seed)
    links = [(layer.weight != 0).double() for layer in network]
    into = [torch.ones(5, dtype=torch.float64)]
    for link in links:
        into.append(link @ into[-1])
    out = [torch.ones(2, dtype=torch.float64)]
    for link in reversed(links):
        out.insert(0, link.T @ out[0])
    alive = [int(((a > 0) & (b > 0)).sum()) for a, b in zip(into, out, strict=True)]
    alive[-1] = 2  # an output stays, also as a constant
    assert units(count(network, CHAIN)) == alive


@given(density=st.floats(0.05, 1), seed=st.integers(0, 10_000))
def test_only_the_units_that_are_alive_matter(density, seed):
    """Whatever the others are, they change the output by a constant at most."""
    network = masked(5, 4, 3, 2, density=density, seed=seed).double()
    inputs = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    before = network(inputs) - network(inputs[:1])
    first = count(network, CHAIN)[0]
    varying = network[0](inputs).sub(network[0](inputs[:1])).abs().amax(0) > 0
    read = (network[1].weight != 0).any(0)
    assert first.outputs_alive <= int((varying & read).sum())
    with torch.no_grad():
        network[0].weight[~(varying & read)] = 0
    assert torch.allclose(network(inputs) - network(inputs[:1]), before, atol=1e-12)


def test_a_convolution_and_what_it_is_flattened_to():
    network = LeNet5()
    with torch.no_grad():
        network.conv1.weight[4:] = 0  # 16 of 20 channels are constants
        network.conv2.weight[10:] = 0  # 40 of 50 channels: their 640 inputs of fc1 are constants
        network.fc1.weight[:, :16] = 0  # the first channel of conv2 is read by nobody
        network.fc1.weight[:, 16:20] = 0  # four of the sixteen positions of the second
        network.fc2.weight[:, 7:] = 0  # seven of 500 units are read
    layers = counted(network)
    assert units(layers) == [4, 9, 140, 7]
    assert [layer.compact for layer in layers] == [25 * 4, 25 * 4 * 9, 140 * 7, 7 * 10]
    assert [layer.nonzero for layer in layers] == [100, 5_000, 500 * 780, 70]
    assert layers[0].sparsity == pytest.approx(80)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("lenet-300-100", [784, 300, 100, 10]),
        ("lenet-500-300", [784, 500, 300, 10]),
        ("lenet-5", [20, 50, 800, 500]),
        ("kingma-cnn", [32, 64, 3136, 128, 128]),
        ("mlp", [784, 340, 340, 340, 10]),
    ],
)
def test_a_network_with_nothing_removed(name, expected):
    layers = counted(build(name), torch.zeros(2, *MODELS[name].input_shape))
    assert units(layers) == expected
    assert all(layer.compact == layer.weights == layer.nonzero for layer in layers)


@pytest.mark.parametrize(("name", "density"), [("lenet-300-100", 0.012), ("lenet-5", 0.01)])
def test_the_units_are_those_that_a_compression_leaves(name, density):
    """But for single positions of a flattened feature map, which count here and can only be removed by the channel."""
    torch.manual_seed(0)
    network = build(name)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                few_outputs = layer.weight.shape[0] <= 50
                layer.weight.mul_(torch.rand_like(layer.weight) < density * (10 if few_outputs else 1))
    compressed = compress(network, torch.zeros(1, 1, 28, 28), rewrite_gain=0.0)
    small = {layer.name: layer.small_shape for layer in compressed.summary().layers}
    for layer in counted(network):
        assert small[layer.name][0] == layer.outputs_alive < layer.outputs or layer.outputs_alive in (10, 50)
        if layer.name != "fc1":
            assert small[layer.name][1] == layer.inputs_alive


def test_a_network_with_nothing_left():
    network = masked(5, 4, 2, density=0, seed=0)
    layers = counted(network, torch.zeros(2, 5))
    assert units(layers) == [0, 0, 2]
    assert sum(layer.compact for layer in layers) == 0


def test_layers_with_groups_have_their_weights_counted_and_their_units_not():
    network = nn.Sequential(nn.Conv2d(4, 4, 3, groups=2), nn.Flatten(), nn.Linear(4, 2))
    layers = counted(network, torch.zeros(2, 4, 3, 3))
    assert units(layers) is None
    assert layers[0].compact == layers[0].weights


def test_units_are_counted_in_a_network_that_is_no_chain():
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.last = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.first(x) + self.second(x))

    network = Branches()
    with torch.no_grad():
        network.last.weight[:, 0] = 0
    layers = counted(network, torch.zeros(2, 4))
    assert [(layer.inputs_alive, layer.outputs_alive) for layer in layers] == [(4, 2), (4, 2), (2, 2)]


def test_a_network_without_layers_is_refused():
    network = nn.ReLU()
    with pytest.raises(ValueError, match="must have a linear or a convolutional layer"):
        counted(network, torch.zeros(2, 5))
