import torch
from tests.compression.nets import Branches, randomise_, removed
from torch import nn
from torch.nn import functional as F

from vbdrop.analysis.rules.pointwise import IDENTITIES, POINTWISE

FUNCTIONS = {
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3),
    "elu": lambda x: F.elu(x, 0.5),
    "threshold": lambda x: F.threshold(x, 0.1, -2.0),
    "clamp": lambda x: torch.clamp(x, -0.5, 0.5),
    "clamp_min": lambda x: torch.clamp_min(x, -0.2),
    "clamp_max": lambda x: torch.clamp_max(x, 0.2),
    "pow": lambda x: x**3,
    "log1p": lambda x: torch.log1p(x.abs()),
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "sqrt": lambda x: torch.sqrt(x.abs()),
    "reciprocal": lambda x: torch.reciprocal(x + 10),
    "log_sigmoid": F.logsigmoid,
    "to": lambda x: x.to(torch.float32).to(torch.float64),
    "dropout": lambda x: F.dropout(x, training=False),
    "type_as": lambda x: x.type_as(x),
    "clone": lambda x: x.clone(memory_format=torch.contiguous_format),
}
"""Those that need arguments, or live under another name."""


def function_of(name: str):
    return FUNCTIONS.get(name) or getattr(F, name, None) or getattr(torch, name)


class EveryFunction(nn.Module):
    """A layer with two constant units, every function on it, and a layer that reads all of the results."""

    def __init__(self, names):
        super().__init__()
        self.functions = [function_of(name) for name in names]
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4 * len(names), 2)
        with torch.no_grad():
            self.first.weight[:2] = 0

    def forward(self, x):
        hidden = self.first(x)
        return self.last(torch.cat([function(hidden) for function in self.functions], 1))


def test_every_function_takes_constants_through():
    skipped = {"alias", "detach", "contiguous", "feature_dropout", "alpha_dropout", "_to_copy"}  # not in such graphs
    names = [name for name in (*POINTWISE, *IDENTITIES) if name not in skipped]
    model = randomise_(EveryFunction(names))
    with torch.no_grad():
        model.first.weight[:2] = 0
    tolerance = 1e-6  # one branch goes through float32
    removal = removed(model, torch.randn(2, 3).double(), tolerance=tolerance)
    assert removal.model.first.out_features == 2
    assert removal.model.last.in_features == 2 * len(names)
    assert removal.left == {}


class Unfollowed(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.last(self.function(torch.sigmoid(self.first(x))))


@torch.no_grad()
def test_casts_to_whole_numbers_and_functions_of_two_tensors_are_not_followed():
    functions = [lambda x: (9 * x).to(torch.int64).double(), lambda x: x**x, lambda x: torch.clamp(x, max=x.mean())]
    model = randomise_(Branches(map(Unfollowed, functions)))
    for branch in model:
        branch.first.weight[0] = 0
    removal = removed(model, torch.randn(2, 3).double())
    assert [removal.model.get_submodule(f"{i}.first").out_features for i in range(3)] == [4, 4, 4]
    assert "it is cast to integers" in removal.left.values()
    assert {f"{i}.first" for i in range(3)} <= set(removal.left), "what is dead but kept"
    assert sum("gets a tensor" in reason and "dead" not in reason for reason in removal.left.values()) == 2


def test_a_new_tensor_of_the_same_type_reads_no_channel():
    class Masked(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.last, self.width = nn.Linear(5, 8), nn.Linear(8, 3), width

        def forward(self, x):
            x = torch.relu(self.first(x))
            mask = x.new_zeros(self.width)
            mask[1:] = 2
            return self.last(x) + mask if self.width == 3 else self.last(x + mask)

    for width, kept in ((3, 6), (8, 8)):
        model = randomise_(Masked(width))
        with torch.no_grad():
            for parameter in model.first.parameters():
                parameter[:2] = 0
        assert removed(model, torch.randn(4, 5).double()).model.get_submodule("first").out_features == kept
