import pytest
import torch
from tests.compression.nets import Branches, randomise_, removed
from torch import nn

X = torch.randn(3, 4).double()


class Joined(nn.Module):
    """Two layers of ten units, joined: 0, 1 are constants in both, 2 to 4 only in the first, 5 to 7 in the second."""

    def __init__(self, join, inputs=10):
        super().__init__()
        self.join = join
        self.a, self.b, self.last = nn.Linear(4, 10), nn.Linear(4, 10), nn.Linear(inputs, 2)
        randomise_(self)
        with torch.no_grad():
            self.a.weight[:5] = 0
            self.b.weight[[0, 1, 5, 6, 7]] = 0

    def forward(self, x):
        return self.last(self.join(torch.tanh(self.a(x)), torch.tanh(self.b(x))))


def widths(model: nn.Module) -> tuple[int, int, int]:
    return (model.a.out_features, model.b.out_features, model.last.in_features)


@pytest.mark.parametrize("rewrite", [True, False])
def test_terms_are_tied_and_a_channel_goes_if_it_is_constant_in_both(rewrite):
    joins = [torch.sub, torch.div, torch.maximum, torch.mul, lambda a, b: torch.add(a, b, alpha=2)]
    model = Branches(Joined(lambda a, b, join=join: join(a, b + 3)) for join in joins)
    small = removed(model, X, rewrite=rewrite).model
    assert type(small) is Branches
    assert [widths(branch) for branch in small] == [(8, 8, 8)] * len(joins)


@torch.no_grad()
def test_a_product_with_zero_is_zero():
    model = Joined(torch.mul)
    model.b.bias[5:7] = 0  # tanh(0) times anything
    assert widths(removed(model, X).model) == (6, 6, 6)


@torch.no_grad()
def test_a_sum_adds_each_term_where_it_varies():
    model = Joined(torch.add)
    assert widths(removed(model, X).model) == (5, 5, 8)
    assert widths(removed(model, X, rewrite=False).model) == (8, 8, 8)


@torch.no_grad()
def test_a_term_that_lacks_one_channel_of_a_sum_gets_it():
    model = Joined(torch.add)
    randomise_(model)
    model.a.weight[0] = 0
    small = removed(model, X).model
    assert type(small) is Joined
    assert widths(small) == (10, 10, 10)


def test_numbers_and_broadcast_tensors_do_not_tie():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.gate, self.last = nn.Linear(4, 6), nn.Linear(4, 1), nn.Linear(6, 2)

        def forward(self, x):
            hidden = 2 - torch.relu(self.first(x)) * 3
            return self.last(hidden * torch.sigmoid(self.gate(x)))

    model = randomise_(Scaled())
    with torch.no_grad():
        model.first.weight[:2] = 0
        model.first.bias[:2] = -1  # 2 - 3 * relu(-1) is 2, and 2 times the gate varies
        model.last.weight[:, 5] = 0
    small = removed(model, X).model
    assert (small.first.out_features, small.gate.out_features) == (5, 1)


def test_a_tensor_without_known_channels_keeps_those_that_it_meets():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last, self.shift = nn.Linear(4, 6), nn.Linear(6, 2), nn.Parameter(torch.randn(6))

        def forward(self, x):
            return self.last(self.first(x) + self.shift.cumsum(0))

    model = randomise_(Shifted())
    with torch.no_grad():
        model.first.weight[:2] = 0
    removal = removed(model, X)
    assert removal.model.get_submodule("first").out_features == 6
    assert "its terms do not have the same channels" in removal.left.values()


def test_a_concatenation_has_the_channels_of_its_terms():
    model = Joined(lambda a, b: torch.cat([a, b], 1), 20)
    assert widths(removed(model, X).model) == (5, 5, 10)


def test_an_empty_list_in_a_concatenation_counts_for_nothing():
    joins = [lambda a, b: torch.cat([torch.empty(0), a, b], 1), lambda a, b: torch.cat([a, b, torch.empty(0)], 1)]
    for join in joins:
        assert widths(removed(Joined(join, 20), X).model) == (5, 5, 10)


def test_an_empty_list_along_another_axis_counts_for_nothing():
    model = Joined(lambda a, b: torch.cat([torch.empty(0), a[:, None], b[:, None]], 1).mean(1))
    with torch.no_grad():
        model.a.bias[1] = model.b.bias[1]
    assert widths(removed(model, X).model) == (9, 9, 9)


@torch.no_grad()
def test_a_concatenation_along_another_axis_ties_its_terms():
    model = Joined(lambda a, b: torch.cat([a[:, None], b[:, None]], 1).mean(1))
    model.a.bias[1] = model.b.bias[1]  # the same constant in both; unit 0 has a different one in each
    assert widths(removed(model, X).model) == (9, 9, 9)


def test_an_input_in_a_concatenation_stays_whole():
    class Skipped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(10, 2)

        def forward(self, x):
            return self.last(torch.cat([x, torch.relu(self.first(x))], 1))

    model = randomise_(Skipped())
    with torch.no_grad():
        model.first.weight[:3] = 0
        model.last.weight[:, 1] = 0  # an input feature that is not read
    small = removed(model, X).model
    assert small.first.out_features == 3
    assert small.last.in_features == 6


@torch.no_grad()
def test_a_dead_branch_is_dropped_from_sums_and_concatenations():
    model = Joined(lambda a, b: torch.cat([a, b], 1), 20)
    model.b.weight.zero_()
    assert not hasattr(removed(model, X).model, "b")
    model = Joined(torch.add)
    model.a.weight.zero_()
    small, plan, _ = removed(model, X)
    assert not hasattr(small, "a")
    assert plan.program.removed == ["a.weight", "a.bias"]
    assert small.b.out_features == 5
    model.b.weight.zero_()
    removed(model, X)  # nothing is left of either


def test_a_selection_ties_both_sides_and_its_question():
    model = Joined(lambda a, b: torch.where(a > 0, a, b), 10)
    small = removed(model, X).model
    assert widths(small)[0] == widths(small)[1]


def only_dead(left: dict[str, str]) -> bool:
    return all("dead but kept" in reason for reason in left.values())


def test_a_stack_and_a_replaced_slice_have_the_channels_of_their_parts():
    stacked = removed(Joined(lambda a, b: torch.stack([a, b], 1).amax(1), 10), X)
    assert only_dead(stacked.left), "no channel may be dropped of one part alone"

    def replace(a, b):
        a = a.clone()
        a[:, 2:6] = b[:, :4]
        return a

    replaced = removed(Joined(replace, 10), X)
    assert only_dead(replaced.left)
    assert widths(replaced.model)[2] < 10


class Affine(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 2)
        self.scale, self.shift = nn.Parameter(torch.ones(1, 1, 6)), nn.Parameter(torch.zeros(1, 1, 6))

    def forward(self, x):
        x = self.first(x)
        return self.last(torch.lerp(torch.addcmul(self.shift, self.scale, x), torch.addcdiv(x, x, x + 9), 0.3))


def test_arithmetic_on_three_tensors_ties_their_channels():
    model = randomise_(Affine())
    with torch.no_grad():
        model.last.weight[:, :2] = 0
    small = removed(model, torch.randn(3, 5, 4).double()).model
    assert small.first.out_features == 4
    assert small.scale.shape == small.shift.shape == (1, 1, 4)
