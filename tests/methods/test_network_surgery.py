"""Dynamic network surgery: hysteresis, weights that come back, and a dense network behind the mask."""

import pytest
import torch
from tests.trained import above, below
from torch import nn

from vbdrop.methods import NetworkSurgery
from vbdrop.methods.network_surgery import surgery
from vbdrop.methods.shared.masks import mask_of
from vbdrop.train.method import Batch, Step
from vbdrop.train.sparsity import sparsity, weight_layers


def test_a_weight_between_the_two_limits_keeps_its_state():
    sizes = torch.tensor([0.89, 0.91, 1.09, 1.11])
    for sign in (1, -1):
        assert surgery(torch.ones(4).bool(), sign * sizes, torch.tensor(1.0)).tolist() == [False, True, True, True]
        assert surgery(torch.zeros(4).bool(), sign * sizes, torch.tensor(1.0)).tolist() == [False, False, False, True]


def test_the_threshold_is_taken_once_from_the_trained_network():
    method = NetworkSurgery(c_rate=1.5, pretrain=0.5, stop=0.9)
    model = method.build(nn.Linear(40, 10))
    sizes = model.weight.detach().abs()
    method.after_step(model, Step(3, 10, 0.0, 1, 1))
    assert model.threshold == 0
    method.after_step(model, Step(4, 10, 0.0, 1, 1))
    expected = (sizes.mean() + 1.5 * sizes.std()).item()
    assert model.threshold.item() == pytest.approx(expected)
    method.after_step(model, Step(5, 10, 0.0, 1, 1))
    assert torch.equal(mask_of(model), sizes > 0.9 * expected)
    assert model.threshold.item() == pytest.approx(expected)


def test_a_cut_weight_goes_on_learning_and_comes_back():
    method = NetworkSurgery(decay=0.0)
    model = method.build(nn.Linear(2, 1, bias=False))
    nn.init.constant_(model.weight, 0.5)
    model.dense.fill_(0.5)
    model.threshold.fill_(1.0)
    mask_of(model)[0, 1] = False
    model.weight.data[0, 1] = 0.0
    model.weight.data += 0.3  # the optimizer's step, at the masked weights
    method.after_step(model, Step(90, 100, 0.0, 1, 1))  # after the surgery: the masks rest
    assert model.dense.tolist() == [[pytest.approx(0.8), pytest.approx(0.8)]]
    assert model.weight.tolist() == [[pytest.approx(0.8), 0.0]]
    model.weight.data += 0.4
    method.after_step(model, Step(20, 100, 0.0, 1, 1))  # the first step of the surgery: certain
    assert model.weight.tolist() == [[pytest.approx(1.2), pytest.approx(1.2)]]


def test_the_decay_reaches_the_cut_weights_too():
    method = NetworkSurgery(decay=0.5)
    model = method.build(nn.Linear(3, 2, bias=False))
    model.dense.copy_(torch.tensor([[1.0, 2, 3], [4, 5, 6]]))
    batch = Batch(torch.zeros(2, 3), torch.tensor([0, 1]))  # no gradient from the cross-entropy
    method.loss(model, batch, Step(0, 10, 0.0, 1, 1)).backward()
    torch.testing.assert_close(model.weight.grad, model.dense)


def test_updates_become_rarer():
    method = NetworkSurgery(pretrain=0.001, stop=0.999, slowdown=3.0)
    model = method.build(nn.Linear(2, 1))
    model.threshold.fill_(10.0)
    updates = []
    for index in range(4_000):
        mask_of(model).fill_(True)
        method.after_step(model, Step(index, 4_000, 0.0, 1, 1))
        updates.append(not mask_of(model).any())
        model.threshold.fill_(10.0)
    early, late = (sum(part) / 500 for part in (updates[4:504], updates[-504:-4]))
    assert early == pytest.approx(0.84, abs=0.08)  # the mean of 1 / (1 + 3 t) over the first eighth; 5 standard errors
    assert late == pytest.approx(0.26, abs=0.10)


@pytest.mark.trained
def test_weights_are_cut_and_some_are_spliced(task):
    method = NetworkSurgery(c_rate=1.5)
    spliced, before = 0, []

    def watch(model, step):
        nonlocal spliced
        now = torch.cat([mask_of(layer).flatten() for _, layer in weight_layers(model)])
        if before:
            spliced += int((now & ~before[-1]).sum())
        before.append(now.clone())

    plain = method.finish(task.fit(method, epochs=12, watch=watch))
    above(10, spliced, mean=1230.0, sd=68.0)
    assert torch.equal(before[-1], before[int(0.7 * len(before)) + 1]), "the masks rest after the surgery"
    above(2, sparsity(plain).ratio, mean=3.79, sd=0.16)
    below(25, task.error(plain), mean=11.0, sd=1.1)


def test_the_surgery_must_end_after_it_starts():
    with pytest.raises(ValueError, match=r"`stop` of NetworkSurgery must be after `pretrain`; got stop=0\.2"):
        NetworkSurgery(pretrain=0.3, stop=0.2)
