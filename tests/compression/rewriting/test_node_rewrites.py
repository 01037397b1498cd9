import pytest
import torch
from tests.compression.nets import randomise_, removed
from torch import fx, nn

X = torch.randn(3, 40).double()


def targets(model: fx.GraphModule) -> list[str]:
    return [str(node.target) for node in model.graph.nodes if node.op == "call_function"]


class Around(nn.Module):
    """A layer of twelve units, something done to it, and a layer behind."""

    def __init__(self, function, width: int):
        super().__init__()
        self.function = function
        self.first, self.last = nn.Linear(40, 12), nn.Linear(width, 2)

    def forward(self, x):
        return self.last(self.function(torch.sigmoid(self.first(x))))


@torch.no_grad()
def small_of(function, width: int) -> fx.GraphModule:
    """Without the units 0, 3 and 6 to 8, which are constants."""
    model = randomise_(Around(function, width))
    model.first.weight[[0, 3, 6, 7, 8]] = 0
    small = removed(model, X).model
    assert small.first.out_features == 7
    return small


def test_slices_begin_and_end_where_their_channels_are_now():
    small = small_of(lambda x: torch.cat([x[:, 2:9], x[:, 9:], x[:, :2]], 1), 12)
    slices = [node.args[2:4] for node in small.graph.nodes if "slice" in str(node.target) and node.args[1] == 1]
    assert slices == [(1, 4), (4, 7), (0, 1)]


def test_a_slice_with_steps_is_a_selection():
    small = small_of(lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1), 12)
    assert "aten.index_select.default" in targets(small)


def test_splits_have_the_sizes_of_what_is_left():
    small = small_of(lambda x: torch.cat(x.chunk(3, 1)[::-1], 1), 12)
    (split,) = (node for node in small.graph.nodes if "split_with_sizes" in str(node.target))
    assert split.args[1] == [2, 2, 3]


def test_a_split_along_another_axis_stays():
    small = small_of(lambda x: torch.cat(x[:, None].expand(-1, 2, -1).split(1, 1), 2).flatten(1)[:, 3:], 21)
    assert small.last.in_features == 12


def test_sizes_that_are_spelled_out_change():
    small = small_of(lambda x: x.reshape(-1, 12, 1).expand(-1, 12, 2).reshape(-1, 24), 24)
    sizes = [
        node.args[1][1] for node in small.graph.nodes if "reshape" in str(node.target) or "expand" in str(node.target)
    ]
    assert sizes == [7, 7, 14]


class Sum(nn.Module):
    """Two images with constants in different channels, added, behind zero padding; one of them is read twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.last = nn.Conv2d(1, 12, 1), nn.Conv2d(1, 12, 1), nn.Conv2d(12, 2, 3, padding=1)
        self.other = nn.Conv2d(12, 2, 1)

    def forward(self, x):
        a, b = torch.sigmoid(self.a(x)), torch.sigmoid(self.b(x))
        return self.last(a + b), self.other(a)


@torch.no_grad()
def test_terms_are_added_where_they_vary_and_their_constants_elsewhere():
    x = torch.randn(2, 1, 5, 5).double()
    model = randomise_(Sum())
    model.a.weight[:6] = 0
    small = removed(model, x).model
    assert (small.a.out_channels, small.b.out_channels) == (6, 12)
    assert targets(small).count("aten.index_add.default") == 1  # onto the other term
    model.b.weight[[0, 1, *range(6, 10)]] = 0  # 0 and 1 are constants of the sum now, which one of them carries
    small = removed(model, x).model
    assert (small.a.out_channels, small.b.out_channels, small.last.in_channels) == (6, 6, 11)
    assert targets(small).count("aten.index_add.default") == 2
    assert targets(small).count("aten.new_zeros.default") == 1
    model.last.weight[:, 8:] = 0  # what the sum does not take, its term has for its other reader
    small = removed(model, x).model
    assert (small.a.out_channels, small.last.in_channels) == (6, 7)
    assert any("selection" in name for name in small.state_dict())


@torch.no_grad()
def test_a_concatenation_goes_on_without_what_is_dead():
    small = small_of(lambda x: torch.cat([x[:, 6:9], x[:, :6], x[:, 9:]], 1), 12)
    (cat,) = (node for node in small.graph.nodes if "cat" in str(node.target))
    assert len(cat.args[0]) == 2


@pytest.mark.parametrize(
    "copied",
    [
        lambda x: x.clone(),
        lambda x: x.clone().view(-1),
        lambda x: x.clone().split(3, 1)[0],
        lambda x: torch.zeros_like(x).copy_(x),
    ],
)
@torch.no_grad()
def test_what_the_forward_returns_as_a_copy_is_one(copied):
    class Copies(Around):
        def forward(self, x):
            return super().forward(x), copied(x)

    model = randomise_(Copies(lambda x: torch.cat([x[:, ::2], x[:, 1::2]], 1), 12))
    model.first.weight[[0, 3, 6, 7, 8]] = 0
    small = removed(model, X).model
    assert isinstance(small, fx.GraphModule)
    x = X.clone()
    small(x)[1].zero_()
    assert torch.equal(x, X)


def test_a_copy_that_stays_inside_is_left_out():
    small = small_of(lambda x: torch.cat([x[:, ::2].clone(), x[:, 1::2].clone()], 1), 12)
    assert "aten.clone.default" not in targets(small)
