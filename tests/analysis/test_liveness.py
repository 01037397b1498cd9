import torch
from tests.compression.nets import randomise_
from torch import nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.analysis.liveness import find_live


def live_of(model: nn.Module, x: torch.Tensor, rewrite: bool = True):
    model = model.eval()
    liveness = find_live(propagate(trace(model, (x,)), model, rewrite=rewrite))
    places = {place.weight: place for place in liveness.facts.products}
    return liveness, places


@torch.no_grad()
def test_deadness_goes_back_through_layers_and_constants_forward_to_a_fixed_point():
    model = randomise_(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 2)))
    model[4].weight[:, 0] = 0  # so the unit 0 of the second layer is dead,
    model[2].weight[1:, 3] = 0  # and with it the only reader of unit 3 of the first
    model[0].weight[1] = 0  # a constant, and
    model[2].weight[2, [0, 2, 4]] = 0  # one that reads only constants and what is dead
    liveness, places = live_of(model, torch.zeros(3, 4))
    assert liveness.kept(places["0.weight"].outputs).tolist() == [True, False, True, False, True]
    assert liveness.kept(places["2.weight"].outputs).tolist() == [False, True, False, True, True]


@torch.no_grad()
def test_one_constant_carries_the_others_behind_padding_the_largest():
    model = randomise_(nn.Sequential(nn.Conv2d(1, 5, 1), nn.Conv2d(5, 2, 3, padding=1)))
    model[0].weight[:3] = 0
    model[0].bias[:3] = torch.tensor([0.5, -2.0, 1.0])
    liveness, places = live_of(model, torch.zeros(3, 1, 5, 5))
    assert liveness.kept(places["0.weight"].outputs).tolist() == [False, True, False, True, True]


@torch.no_grad()
def test_a_constant_that_is_there_anyway_or_serves_several_carries_first():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.a, self.b = (
                nn.Conv2d(1, 4, 1),
                nn.Conv2d(4, 2, 3, padding=1),
                nn.Conv2d(4, 2, 3, padding=1),
            )

        def forward(self, x):
            hidden = self.first(x)
            return self.a(hidden), self.b(hidden)

    model = randomise_(Two())
    model.first.weight[:3] = 0
    model.first.bias[:3] = torch.tensor([2.0, 1.0, 1.5])
    model.a.weight[:, 2] = 0  # a reads 0 and 1,
    model.b.weight[:, 0] = 0  # b reads 1 and 2: unit 1 can carry for both
    liveness, places = live_of(model, torch.zeros(3, 1, 5, 5))
    assert liveness.kept(places["first.weight"].outputs).tolist() == [False, True, False, True]


@torch.no_grad()
def test_a_dead_layer_keeps_one_channel_that_needs_nothing_of_what_it_read():
    model = randomise_(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)))
    model[4].weight.zero_()
    liveness, places = live_of(model, torch.zeros(3, 4))
    for weight in ("0.weight", "2.weight"):
        assert int(liveness.kept(places[weight].outputs).sum()) == 1
        assert not liveness.live[liveness.root[places[weight].outputs.units]].any()


@torch.no_grad()
def test_a_module_that_is_used_twice_keeps_what_either_use_needs():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.shared, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(8, 2)

        def forward(self, x):
            hidden = torch.relu(self.shared(self.first(x)))
            again = torch.relu(self.shared(hidden))
            return self.last(torch.cat([hidden, again], 1))

    model = randomise_(Twice())
    model.last.weight[:, [0, 1, 4, 6]] = 0  # 0 is read by nothing but the second use; 1 and 2 by one place each
    model.shared.weight[:, 0] = 0
    liveness, places = live_of(model, torch.zeros(3, 4))
    assert liveness.kept(places["shared.weight"].outputs).tolist() == [False, True, True, True]
    assert liveness.kept(places["first.weight"].outputs).tolist() == [False, True, True, True]


@torch.no_grad()
def test_what_nothing_depends_on_is_not_reached():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            return self.a(x) + torch.relu(self.b(x))

    model = randomise_(Sum())
    model.b.weight.zero_()
    for rewrite in (True, False):
        liveness, places = live_of(model, torch.zeros(2, 4), rewrite)
        assert (places["b.weight"].node in liveness.reached) is not rewrite


@torch.no_grad()
def test_layers_that_lose_units_keep_a_multiple_or_all_of_them():
    model = randomise_(nn.Sequential(nn.Linear(4, 9), nn.ReLU(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 2)))
    model[2].weight[:, 2:] = 0  # two of nine are read
    model[4].weight[:, 5:] = 0  # and five of seven
    facts = propagate(trace(model.eval(), (torch.zeros(3, 4),)), model)
    for multiple, widths in ((1, (2, 5)), (3, (3, 6)), (4, (4, 7)), (8, (8, 7)), (16, (9, 7))):
        liveness = find_live(facts, multiple)
        places = {place.weight: place for place in facts.products}
        kept = [liveness.kept(places[name].outputs) for name in ("0.weight", "2.weight", "4.weight")]
        assert tuple(int(which.sum()) for which in kept) == (*widths, 2), multiple
        assert int(kept[0][:2].sum()) + int(kept[1][:5].sum()) == 7  # those that are read are among them
        assert int(liveness.live[liveness.root[places["0.weight"].outputs.units]].sum()) == 2  # the others are zeros
