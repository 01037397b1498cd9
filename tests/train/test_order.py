"""The order of the examples: fixed by seed and epoch alone."""

import torch

from vbdrop.train import Batch, batch_order
from vbdrop.train.order import batches


def test_the_order_is_fixed_and_does_not_touch_the_noise():
    state = torch.get_rng_state()
    assert torch.equal(batch_order(1000, 3, 5), batch_order(1000, 3, 5))
    assert torch.equal(torch.get_rng_state(), state)


def test_seed_and_epoch_each_change_the_order():
    orders = [batch_order(1000, seed, epoch) for seed, epoch in [(0, 1), (1, 0), (0, 0), (1, 1)]]
    for i, order in enumerate(orders):
        assert torch.equal(order.sort().values, torch.arange(1000))
        assert not any(torch.equal(order, other) for other in orders[:i])


def test_inputs_and_targets_stay_together():
    examples = Batch(torch.arange(70.0).view(7, 10), torch.arange(7))
    seen = list(batches(examples, 3, seed=1, epoch=2))
    assert all(torch.equal(batch.inputs[:, 0], 10.0 * batch.targets) for batch in seen)
    assert sorted(torch.cat([batch.targets for batch in seen]).tolist()) == list(range(7))
