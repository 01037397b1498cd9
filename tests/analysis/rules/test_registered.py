"""A layer with an operation of its own is converted, trained, compressed and saved as one of PyTorch's is."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from vbdrop.analysis.layer_shapes import SHAPES
from vbdrop.analysis.rules.registered import REGISTERED, rule_of
from vbdrop.analysis.rules.table import RULES
from vbdrop.layers import Linear


@torch.library.custom_op("vbdrop_tests::fast_linear", mutates_args=())
def fast_linear(input: Tensor, weight: Tensor, bias: Tensor | None, block: int = 8) -> Tensor:
    return F.linear(input, weight, bias)


@fast_linear.register_fake
def _(input: Tensor, weight: Tensor, bias: Tensor | None, block: int = 8) -> Tensor:
    return input.new_empty(*input.shape[:-1], weight.shape[0])


@torch.library.custom_op("vbdrop_tests::without_bias", mutates_args=())
def without_bias(input: Tensor, weight: Tensor) -> Tensor:
    return F.linear(input, weight)


class FastLinear(nn.Module):
    """A linear layer with a kernel of its own, which stores its sizes and uses one of them."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.width_in, self.width_out = width_in, width_out
        self.weight = nn.Parameter(torch.randn(width_out, width_in) / width_in**0.5)
        self.bias = nn.Parameter(torch.randn(width_out))

    def forward(self, input: Tensor) -> Tensor:
        return fast_linear(input, self.weight, self.bias).view(-1, self.width_out)


class NoisyFastLinear(Linear, FastLinear):
    """`FastLinear` after `vbdrop.convert_`."""

    @property
    def n_inputs(self) -> int:
        return self.weight.shape[1]

    @property
    def n_outputs(self) -> int:
        return self.weight.shape[0]


@pytest.fixture
def registered() -> Iterator[None]:
    """The layer and its rule, for one test."""
    from vbdrop.layers.table import LAYERS

    before = dict(LAYERS), dict(REGISTERED), dict(SHAPES)
    vbdrop.register_layer(FastLinear, NoisyFastLinear)
    vbdrop.register_rule(
        "vbdrop_tests::fast_linear", like="linear", layer=FastLinear, inputs="width_in", outputs="width_out"
    )
    yield
    for table, content in zip((LAYERS, REGISTERED, SHAPES), before, strict=True):
        table.clear()
        table.update(content)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(FastLinear(6, 16), nn.ReLU(), FastLinear(16, 12), nn.Tanh(), nn.Linear(12, 3))


def without_units(model: nn.Sequential) -> nn.Sequential:
    """Rows of zeros, which leave constants, and columns of zeros, which nothing reads."""
    with torch.no_grad():
        model[0].weight[:5] = 0
        model[2].weight[:, 10:] = 0
        model[2].weight[3] = 0
    return model


def test_the_units_of_a_registered_layer_are_removed(registered, tmp_path):
    model, x = without_units(network()), torch.randn(7, 6)
    small = vbdrop.compress(model, x)
    assert [tuple(layer.weight.shape) for layer in (small.model[0], small.model[2], small.model[4])] == [
        (5, 6),
        (11, 5),
        (3, 11),
    ]
    assert (small.model[0].width_out, small.model[2].width_in, small.model[2].width_out) == (5, 5, 11)
    torch.testing.assert_close(small.model(x), model(x), rtol=1e-5, atol=1e-6)
    small.save(tmp_path / "net.safetensors")
    loaded = vbdrop.load(tmp_path / "net.safetensors", network())
    assert torch.equal(loaded(x), small.model(x))


def test_without_a_rule_every_channel_around_the_operation_stays(registered):
    REGISTERED.clear()
    model = without_units(network())
    small = vbdrop.compress(model, torch.randn(7, 6))
    assert small.model[0].weight.shape == (16, 6)
    assert any("fast_linear" in reason for reason in small.left.values())


@pytest.mark.parametrize("mode", [vbdrop.Units(), vbdrop.Weights()], ids=["units", "weights"])
def test_a_registered_layer_goes_all_the_way(registered, mode):
    model, x, target = network(), torch.randn(64, 6), torch.randn(64, 3)
    vbdrop.convert_(model, mode)
    elbo = vbdrop.ELBO(model, n_train=64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = model[0].weight.detach().clone()
    elbo(F.mse_loss(model(x), target)).backward()
    optimizer.step()
    assert not torch.equal(model[0].weight, before)
    with torch.no_grad():
        if isinstance(mode, vbdrop.Units):
            model[2].gate.log_sigma2[:9] = 10.0
        else:
            model[2].log_sigma2[:, :9] = 10.0
    small = vbdrop.compress(model, x)
    assert small.model[0].weight.shape == (7, 6)
    torch.testing.assert_close(small.model(x), model.eval()(x), rtol=1e-5, atol=1e-6)


def test_rules_are_found_by_namespace_and_name(registered):
    assert rule_of(torch.ops.vbdrop_tests.fast_linear.default) is RULES["linear"]
    assert rule_of(torch.ops.vbdrop_tests.without_bias.default) is None
    assert rule_of(torch.ops.aten.conv2d.default) is RULES["conv2d"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"like": "no_such"}, "`like` must be a PyTorch operation with a rule: .*got 'no_such'"),
        ({"operation": "fast_linear"}, "`operation` must name an operation.*got 'fast_linear'"),
        ({"operation": "vbdrop_tests::no_such"}, "got 'vbdrop_tests::no_such'"),
        ({"operation": "vbdrop_tests::without_bias"}, "'vbdrop_tests::without_bias' has no bias"),
        ({"layer": FastLinear}, "`layer` and `outputs` must be given together"),
        ({"inputs": "width_in"}, "`inputs` only with them"),
    ],
)
def test_a_wrong_registration_changes_nothing(changed, message):
    before = dict(REGISTERED), dict(SHAPES)
    with pytest.raises(ValueError, match=message):
        vbdrop.register_rule(**({"operation": "vbdrop_tests::fast_linear", "like": "linear"} | changed))
    assert before == (REGISTERED, SHAPES)
