import pytest
import torch
from tests.compression.nets import randomise_, removed
from torch import fx, nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.analysis.liveness import find_live
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.rewriting.graph_writer import Writer

IMAGES = torch.randn(2, 3, 6, 6).double()


class Calls(nn.Module):
    """Layers as modules, and their tensors in functions with other settings than theirs."""

    def __init__(self):
        super().__init__()
        self.conv, self.reflect = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")
        self.up, self.norm, self.last = nn.ConvTranspose2d(4, 4, 3, stride=2), nn.GroupNorm(2, 4), nn.Conv2d(4, 2, 1)
        self.register_buffer("conv_constants", torch.ones(()))

    def forward(self, x):
        strided = nn.functional.conv2d(x, self.conv.weight, self.conv.bias, stride=2)
        unbiased = nn.functional.conv2d(x, self.conv.weight, padding=1)
        plain = self.conv(x) + self.reflect(x)
        up = self.up(strided, output_size=[6, 6])
        shift = torch.tensor([0.25], dtype=torch.float64)
        return self.last(self.norm(plain + unbiased + up)) + shift * self.conv_constants


@torch.no_grad()
def test_an_operation_is_the_call_of_a_module_only_if_it_is_exactly_that():
    model = randomise_(Calls())
    model.last.weight[:, 0] = 0  # one of four inputs is selected away, so there is a graph
    small = removed(model, IMAGES).model
    assert isinstance(small, fx.GraphModule)
    called = [node.target for node in small.graph.nodes if node.op == "call_module"]
    assert sorted(called) == ["conv", "last", "norm"]
    assert "reflect.weight" in [node.target for node in small.graph.nodes if node.op == "get_attr"]


@torch.no_grad()
def test_added_buffers_do_not_take_the_names_of_others():
    model = randomise_(nn.Sequential(nn.Linear(8, 2)))
    model[0].weight[:, :4] = 0
    model.register_buffer("0_inputs", torch.ones(1))
    small = removed(model, torch.randn(2, 8).double()).model
    assert "0_inputs_" in small.state_dict()


@torch.no_grad()
def test_a_layer_that_is_itself_the_model():
    model = randomise_(nn.Linear(8, 2))
    model.weight[:, :4] = 0
    small = removed(model, torch.randn(2, 8).double()).model
    assert small.weight.shape == (2, 4)
    assert torch.equal(small.inputs, torch.arange(4, 8))


@torch.no_grad()
def test_a_new_bias_and_fewer_groups_reach_a_convolution_that_is_no_module_call():
    options = {"groups": 4, "padding": 1, "padding_mode": "reflect", "bias": False}
    model = randomise_(
        nn.Sequential(nn.Conv2d(3, 8, 1), nn.Sigmoid(), nn.Conv2d(8, 4, 3, **options), nn.Flatten(), nn.Linear(144, 2))
    )
    model[0].weight[[0, 1, 2, 4, 6]] = 0  # the first group has constants only, the others one each
    model[4].weight[:, 36:50] = 0  # some positions are selected away, so there is a graph
    small = removed(model, IMAGES).model
    assert isinstance(small, fx.GraphModule)
    assert small.get_submodule("2").bias is not None
    (call,) = (node for node in small.graph.nodes if "conv2d" in str(node.target))
    assert call.args[-1] == 3


class Lookalikes(nn.Module):
    """Operations on the tensors of a layer that are not what the layer does."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 6), nn.Linear(6, 2)
        self.square = nn.Linear(6, 6, bias=False)
        self.slope, self.scale = nn.PReLU(6), nn.LayerNorm(6, bias=False)
        self.groups, self.swapped = nn.GroupNorm(3, 6), nn.LayerNorm(6)
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, x):
        x = self.first(x)
        x = x * self.slope.weight + x * self.scale.weight - self.norm.running_mean
        x = x + nn.functional.linear(self.square.weight, x[:2]).sum()
        x = nn.functional.group_norm(x, 2, self.groups.weight, self.groups.bias)
        return self.last(nn.functional.layer_norm(x, [6], self.swapped.bias, self.swapped.weight))


@torch.no_grad()
def test_an_operation_on_the_tensors_of_a_layer_is_no_call_of_it():
    model = randomise_(Lookalikes())
    model.first.weight[:, :4] = 0
    small = removed(model, torch.randn(3, 8).double()).model
    assert isinstance(small, fx.GraphModule)
    assert {node.target for node in small.graph.nodes if node.op == "call_module"} == {"first", "last"}


@torch.no_grad()
@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook"])
def test_a_layer_with_hooks_is_not_called_since_its_hooks_are_in_the_graph(register):
    model = randomise_(nn.Sequential(nn.Linear(8, 6, bias=False), nn.Linear(6, 2)))
    model[0].weight[:, :4] = 0
    getattr(model[0], register)(lambda module, *values: 2 * values[-1] if len(values) > 1 else (2 * values[0][0],))
    small = removed(model, torch.zeros(3, 8).double()).model
    assert isinstance(small, fx.GraphModule)
    assert [node.target for node in small.graph.nodes if node.op == "call_module"] == ["1"]
    x = torch.randn(3, 8).double()
    torch.testing.assert_close(small(x), model(x))


@torch.no_grad()
def test_names_of_added_buffers_are_of_letters_digits_and_underscores():
    model = randomise_(nn.Sequential(nn.Linear(8, 2)))
    facts = propagate(trace(model, (torch.randn(3, 8),)), model)
    writer = Writer(find_live(facts), {}, Plan())
    names = ["a.fc-1_inputs", "a.fc 1_inputs", "λ_inputs", "a_inputs"]
    nodes = [writer.buffer(name, torch.zeros(1)) for name in names]
    assert [node.target for node in nodes] == ["a_fc_1_inputs", "a_fc_1_inputs_", "__inputs", "a_inputs"]
