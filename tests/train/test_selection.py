"""Layers that select their inputs."""

import copy

import torch
from torch import nn

from vbdrop.compression import Plan
from vbdrop.compression.planning.plan import WeightLayout
from vbdrop.train.selection import inputs_read, select_inputs_, with_selections


def test_a_selection_is_the_layer_with_fewer_columns_and_goes_into_copies():
    layer, x = nn.Linear(5, 2), torch.randn(3, 4, 5)
    small = nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight[:, [0, 2, 3]] = 0
        small.weight.copy_(layer.weight[:, [1, 4]])
        small.bias.copy_(layer.bias)
    handle = select_inputs_(small, [1, 4])
    for model in (small, copy.deepcopy(small)):
        torch.testing.assert_close(model(x), layer(x))
    assert set(small.state_dict()) == {"weight", "bias"}
    handle.remove()
    assert small(x[..., :2]).shape == (3, 4, 2)


def test_an_input_is_read_if_a_kept_output_has_a_weight_for_it():
    weight = torch.tensor([[1.0, 0, 0, 2], [0, 3, 0, 0], [0, 0, 4, 0]])
    shapes = {"weight": [3, 4]}
    assert inputs_read(Plan(shapes=shapes), "weight", weight) == [0, 1, 2, 3]
    assert inputs_read(Plan(keep={"weight": {0: [0, 1], 1: [1, 2, 3]}}, shapes=shapes), "weight", weight) == [1, 3]
    kernel = torch.zeros(3, 4, 2, 2)
    kernel[1, 2, 0, 1] = -1
    assert inputs_read(Plan(shapes={"weight": [3, 4, 2, 2]}), "weight", kernel) == [2]
    grouped = Plan(shapes={"weight": [4, 2, 3]}, layouts={"weight": WeightLayout(groups=2)})
    assert inputs_read(grouped, "weight", torch.zeros(4, 2, 3)) == [0, 1, 2, 3]
    transposed = Plan(shapes={"weight": [4, 2, 3]}, layouts={"weight": WeightLayout(transposed=True)})
    assert inputs_read(transposed, "weight", torch.zeros(4, 2, 3)) == [0, 1, 2, 3]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(40, 40), nn.Linear(40, 40), nn.Linear(40, 40)
        self.second.weight = self.third.weight


def test_only_what_pays_is_selected_and_never_what_stays_or_is_shared():
    network = Tied()
    shapes = {f"{name}.weight": [40, 40] for name in ("first", "second", "third")}
    with torch.no_grad():
        network.first.weight[:, 1] = network.second.weight[:, :30] = 0
    plan, arriving = with_selections(Plan(shapes=shapes), network, {}, [])
    assert (plan, arriving) == (Plan(shapes=shapes), {})
    plan, arriving = with_selections(Plan(shapes=shapes), network, {}, ["first"])
    assert len(plan.keep["first.weight"][1]) == 39  # it selects anyway
    with torch.no_grad():
        network.first.weight[:, :20] = 0
    plan, arriving = with_selections(
        Plan(keep={"first.weight": {1: list(range(5, 40))}}, shapes=shapes), network, {"first.weight": [3, 7]}, []
    )
    assert plan.keep == {"first.weight": {1: [7, *range(20, 40)]}}
    assert plan.attributes == {"first": {"in_features": 21}}
    assert arriving == {"first": list(range(5, 40))}


def test_a_layer_that_reads_nothing_keeps_one_input():
    network = nn.Linear(4, 2)
    nn.init.zeros_(network.weight)
    plan, _ = with_selections(Plan(shapes={"weight": [2, 4]}), network, {}, [])
    assert plan.keep == {"weight": {1: [0]}}
