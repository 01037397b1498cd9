import copy

import torch
from tests.compression.nets import difference, randomise_
from torch import nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.compression.removal import remove

X = torch.randn(2, 3).double()


def flow_of(model: nn.Module, *args):
    model = model.eval()
    return propagate(trace(model, args), model)


def test_a_tied_parameter_has_all_its_names():
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    facts = flow_of(model, torch.zeros(2, 3))
    assert sorted(facts.aliases("0.weight")) == ["0.weight", "2.weight"]
    assert facts.aliases("0.bias") == ["0.bias"]


class Reused(nn.Module):
    """A network that does something else with its parameters, too."""

    def __init__(self, use):
        super().__init__()
        self.use = use
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
        randomise_(self)
        with torch.no_grad():
            self.first.weight[0] = 0
            self.last.weight[:, 1] = 0

    def forward(self, x):
        return self.last(torch.sigmoid(self.first(x))), self.use(self, x)


def test_a_parameter_that_is_used_in_another_way_too_is_frozen():
    uses = {
        "first.weight": [lambda net, x: net.first.weight, lambda net, x: net.first.weight.t() + 1],
        "first.bias": [lambda net, x: net.first.bias.relu()],
        "last.weight": [lambda net, x: net.last.weight.cumsum(0)],
        "last.bias": [lambda net, x: x.sum() * net.last.bias.sum()],
    }
    for name, functions in uses.items():
        for function in functions:
            model = Reused(function)
            facts = flow_of(model, torch.zeros(2, 3))
            assert facts.frozen == {name}
            small = copy.deepcopy(model).double()
            small = remove(small, trace(small, (X,)), (X,), {}).model
            assert difference(model.double(), small, X) < 1e-10
            assert small.get_parameter(name).shape == model.get_parameter(name).shape


def test_a_weight_that_an_embedding_and_a_linear_layer_share_is_cut_for_both():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.last = nn.Embedding(7, 4), nn.Linear(4, 7)
            self.last.weight = self.embed.weight

        def forward(self, tokens):
            return self.last(self.embed(tokens))

    model = randomise_(Tied())
    with torch.no_grad():
        model.last.weight[:, 0] = 0
    tokens = torch.randint(7, (2, 3))
    small, _, left = remove(model, trace(model, (tokens,)), (tokens,), {})
    assert small.embed.weight.shape == (7, 3)
    assert small.embed.weight is small.last.weight
    assert (small.embed.embedding_dim, small.last.in_features, small.last.out_features) == (3, 3, 7)
    assert left == {}


def test_a_place_is_the_module_and_the_node():
    class Inner(nn.Module):
        def forward(self, x):
            return torch.cumprod(x, 1)

    facts = flow_of(nn.Sequential(nn.Linear(3, 3), Inner(), nn.Linear(3, 2)), torch.zeros(2, 3))
    assert facts.left == {"1 (cumprod)": "the operation aten.cumprod.default is not known"}


def test_only_modules_whose_shape_can_change_are_not_fixed_where_the_forward_stays():
    model = nn.Sequential(nn.Linear(3, 3), nn.GRUCell(3, 3))
    facts = flow_of(model, torch.zeros(2, 3))
    nodes = {name: node for node, name in facts.traced.names.items()}
    assert facts.why_fixed(nodes["1.weight_ih"]) is None
    facts.rewrite = False
    assert facts.why_fixed(nodes["0.weight"], nodes["0.bias"]) is None
    assert facts.why_fixed(nodes["1.weight_ih"]) is None
    facts.frozen_shapes = True
    assert "GRUCell" in facts.why_fixed(nodes["1.weight_ih"])
    assert "computed" in facts.why_fixed(next(node for node in facts.traced.graph.nodes if node.op == "call_function"))
