import torch
from tests.compression.nets import randomise_, removed
from torch import fx, nn

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
