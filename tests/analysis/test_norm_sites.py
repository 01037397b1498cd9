import torch
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.analysis.norm_sites import NormSite, module_path, norm_site


class Images(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 6, 1), Images(6), nn.Linear(6, 2)

    def forward(self, x):
        x = self.norm(self.conv(x)).mean((2, 3))
        return self.head(F.layer_norm(x, (6,)))


def test_a_norm_is_found_with_the_axis_of_what_enters_it():
    model = Net().eval()
    traced = trace(model, (torch.randn(2, 3, 5, 4),))
    nodes = [node for node in traced.graph.nodes if "layer_norm" in str(node.target)]
    assert [module_path(node) for node in nodes] == ["norm", ""]
    assert norm_site(traced, model, nodes[0]) == NormSite("norm", "layer", 6, 3)
    assert norm_site(traced, model, nodes[1]) is None


class AddNorm(nn.LayerNorm):
    """A residual stream may come in as a second input."""

    def forward(self, x, residual=None):
        return super().forward(x if residual is None else x + residual)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 2)
        self.norm = AddNorm(8)

    def forward(self, x):
        hidden = self.first(x)
        return self.head(self.norm(torch.relu(self.second(hidden)), residual=hidden))


class Again(Residual):
    """The norm is called twice, with one input each time."""

    def forward(self, x):
        return self.head(self.norm(torch.relu(self.second(self.norm(self.first(x))))))


def sites(model, x):
    traced = trace(model.eval(), (x,))
    return [norm_site(traced, model, node) for node in traced.graph.nodes if "layer_norm" in str(node.target)]


def test_a_norm_with_a_second_input_is_none():
    assert sites(Residual(), torch.randn(4, 6)) == [None]
    assert sites(Again(), torch.randn(4, 6)) == [NormSite("norm", "layer", 8, 1)] * 2


def test_a_norm_with_a_second_input_is_not_converted():
    model, x = Residual(), torch.randn(4, 6)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    assert type(model.norm) is AddNorm
    assert model.train()(x).shape == (4, 2)
