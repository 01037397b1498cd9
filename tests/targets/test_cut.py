"""The order in which elements go, and the cut that meets a size exactly."""

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.targets.cost_model import CostModel
from vbdrop.targets.cut import CLOSE, SHARE_PER_STEP, exact_cut, fewest, largest_cut, least_kept, order_of
from vbdrop.targets.prunable import plain_without, prunables
from vbdrop.targets.sizes import SizeCounter


def made(mode, unit):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 4))
    vbdrop.convert_(model, mode)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for one in prunables(model):
            one.entry.rate.add_(4 * torch.randn(one.entry.rate.shape, generator=generator))
    counter = SizeCounter(model, (torch.zeros(1, 12),))
    return model, counter, CostModel(model, counter, unit)


@pytest.mark.parametrize("limit", [900, 333, 61])
def test_weights_are_met_to_the_last_one(limit):
    model, counter, costs = made(vbdrop.Weights(), "weights")
    gone = exact_cut(model, costs, lambda plain: counter.count_plain(plain).weights, limit)
    found = counter.count_plain(plain_without(model, gone)).weights
    assert limit - 12 <= found <= limit  # a weight that goes may be the last of a unit, which takes what it reads along


@pytest.mark.parametrize("limit", [700, 200, 40, 33])
def test_macs_are_met_to_one_unit(limit):
    model, counter, costs = made(vbdrop.Units(), "macs")

    def macs(gone):
        return counter.count_plain(plain_without(model, gone)).macs

    gone = exact_cut(model, costs, lambda plain: counter.count_plain(plain).macs, limit)
    found = macs(gone)
    assert found <= limit
    if found < CLOSE * limit:  # then nothing that went could have stayed
        for mask in gone:
            for unit in mask.nonzero()[:, 0]:
                mask[unit] = False
                assert macs(gone) > limit
                mask[unit] = True


def test_another_element_goes_where_the_next_one_would_end_far_below_the_limit():
    layers = [nn.Linear(10, 20, bias=False), nn.ReLU(), nn.Linear(20, 2, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(2, 40, bias=False))
    vbdrop.convert_(model, vbdrop.Units())
    with torch.no_grad():
        model[4].gate.log_sigma2.copy_(torch.tensor([3.0, 2.0]))  # a unit of these is worth the least, and costs 60
        model[2].gate.log_sigma2.fill_(-1.0)
        model[0].gate.log_sigma2.fill_(-1.0)
    counter = SizeCounter(model, (torch.zeros(1, 10),))
    costs = CostModel(model, counter, "macs")
    (_, first, second) = exact_cut(model, costs, lambda plain: counter.count_plain(plain).macs, 319)
    assert counter.before.macs == 320
    assert (int(first.sum()), int(second.sum())) == (1, 0)  # one of the first units, which costs 12, in its place


def test_what_goes_is_worth_less_than_what_stays():
    model, counter, costs = made(vbdrop.Weights(), "weights")
    gone = exact_cut(model, costs, lambda plain: counter.count_plain(plain).weights, 400)
    alphas = [one.entry.log_alpha_full() for one in prunables(model)]
    lowest_gone = min(float(alpha[mask].min()) for alpha, mask in zip(alphas, gone, strict=True))
    kept = [alpha[~mask] for alpha, mask in zip(alphas, gone, strict=True)]
    assert all(float(values.max()) <= lowest_gone for values in kept)


def test_no_layer_is_ever_emptied():
    model, counter, costs = made(vbdrop.Weights(), "weights")
    with torch.no_grad():
        model[2].log_sigma2.fill_(20.0)  # a whole layer that carries noise only
    gone = exact_cut(model, costs, lambda plain: counter.count_plain(plain).weights, 8)
    assert [int((~mask).sum()) for mask in gone][1] == 1
    assert exact_cut(model, costs, lambda plain: counter.count_plain(plain).weights, -1) is None


def test_a_step_takes_a_limited_share_of_a_tensor():
    model, _, costs = made(vbdrop.Units(), "macs")
    with torch.no_grad():
        model[2].gate.log_sigma2.fill_(20.0)
    order = order_of(prunables(model), costs, limited=True)
    gone = order.without(len(order.order))
    assert [int(mask.sum()) for mask in gone] == [int(SHARE_PER_STEP * n) for n in (12, 30, 20)]


def test_the_search_finds_the_fewest_of_any_falling_sizes():
    model, _, costs = made(vbdrop.Units(), "macs")
    order = order_of(prunables(model), costs)
    for steepness in (0.2, 1.0, 6.0):
        total = len(order.order)

        def size(gone, steepness=steepness, total=total):
            return (1 - sum(int(mask.sum()) for mask in gone) / total) ** steepness

        for limit in (0.9, 0.5, 0.1, 0.0):
            expected = next(n for n in range(total + 1) if size(order.without(n)) <= limit)
            assert fewest(order, size, limit) == expected
        assert fewest(order, size, -1.0) is None


def test_rates_remove_nothing_and_are_refused():
    model = nn.Sequential(nn.Linear(12, 30), nn.ReLU(), nn.Linear(30, 4))
    vbdrop.convert_(model, vbdrop.Rates())
    costs = CostModel(model, SizeCounter(model, (torch.zeros(1, 12),)), "macs")
    with pytest.raises(ValueError, match=r"vbdrop\.Rates removes nothing\. Convert it with vbdrop\.Weights\(\) or"):
        largest_cut(model, costs)


@pytest.mark.parametrize(("unit", "least"), [("weights", 2), ("parameters", 2), ("macs", 2), ("latency", 0)])
def test_every_layer_keeps_a_weight_even_if_the_best_ones_do_not_meet(unit, least):
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False))
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        model[0].log_sigma2.copy_(torch.tensor([[-9.0, 0.0], [0.0, 0.0]]) + model[0].weight.square().log())
        model[1].log_sigma2.copy_(torch.tensor([[0.0, -9.0]]) + model[1].weight.square().log())
    counter = SizeCounter(model, (torch.zeros(1, 2),))
    costs = CostModel(model, counter, "weights")
    assert counter.count_plain(plain_without(model, largest_cut(model, costs))).weights < 2
    assert least_kept(model, counter, unit) == least
