"""VBD on weights has the paper's penalty, and its knob moves the operating point."""

import copy

import pytest
import torch
from tests.trained import above, below
from torch import nn

import vbdrop
from vbdrop.methods import VBDWeights
from vbdrop.train.sparsity import sparsity


def test_the_penalty_is_that_of_the_paper():
    model = VBDWeights().build(nn.Linear(5, 3))
    (entry,) = model.variational()
    alpha = entry.log_alpha_full().double().exp()
    assert vbdrop.kl(model).item() == pytest.approx((0.5 * torch.log(1 + 1 / alpha)).sum().item(), rel=1e-5)


@pytest.mark.trained
def test_more_penalty_is_sparser(task):
    low, high = (sparsity(m.finish(task.fit(m, epochs=6))).ratio for m in (VBDWeights(kl_weight=w) for w in (0.3, 3.0)))
    above(1.5, high / low, mean=3.64, sd=0.11)


@pytest.mark.trained
def test_another_hyper_prior_can_be_chosen(task):
    method = VBDWeights(kl_weight=0.3, prior="inverse_gamma")
    model = task.fit(method, epochs=6)
    assert type(model.output.noise.prior) is vbdrop.priors.InverseGamma
    plain = method.finish(copy.deepcopy(model))
    above(1.5, sparsity(plain).ratio, mean=5.34, sd=0.37)
    below(45, task.error(plain), mean=17.2, sd=1.9)
    assert "prior" not in VBDWeights().identity()
    assert method.identity()["prior"] == "inverse_gamma"
    with pytest.raises(
        ValueError, match="`prior` of VBDWeights must be one of 'hierarchical', 'inverse_gamma'; got 'l"
    ):
        VBDWeights(prior="log_uniform_cubic")
