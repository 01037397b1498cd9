"""Bernoulli dropout: the masks' rates and scale, and a short training."""

import pytest
import torch
from tests.trained import below
from torch import nn

from vbdrop.methods import BernoulliDropout


def test_what_enters_is_dropped_at_its_rate_and_keeps_its_mean():
    model = BernoulliDropout(rate=0.4, input_rate=0.1).build(nn.Sequential(nn.Linear(50, 40), nn.Linear(40, 30)))
    x = torch.ones(1_000, 50)
    seen = model[0].gate(x), model[1].gate(x[:, :40])
    for values, rate in zip(seen, (0.1, 0.4), strict=True):
        dropped = (values == 0).float().mean().item()
        assert dropped == pytest.approx(rate, abs=5 * (0.25 / values.numel()) ** 0.5)
        assert values.max().item() == pytest.approx(1 / (1 - rate))


@pytest.mark.trained
def test_it_learns(task):
    method = BernoulliDropout(rate=0.2, input_rate=0.1)
    below(20, task.error(method.finish(task.fit(method, epochs=10))), mean=10.2, sd=0.54)


def test_a_rate_of_one_is_refused():
    with pytest.raises(ValueError, match="`rate` of BernoulliDropout must be 0 or lie between 0 and 1; got 1"):
        BernoulliDropout(rate=1)
