import pytest
import torch
from torch import nn

from vbdrop import Units, Weights, convert_, kl
from vbdrop.objective import ELBO, evidence_loss


@pytest.fixture
def model() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    convert_(model, Weights(), Units())
    return model


@pytest.mark.parametrize("kl_weight", [0.0, 0.3, 2])
def test_value_and_gradient_are_those_of_nll_and_kl(model, kl_weight):
    nll, parameters = torch.tensor(1.5, dtype=torch.float64, requires_grad=True), list(model.parameters())
    loss, expected = evidence_loss(nll, model, n_train=40, kl_weight=kl_weight), nll + kl_weight * kl(model) / 40
    torch.testing.assert_close(loss, expected)
    found, true = (torch.autograd.grad(each, [nll, *parameters], materialize_grads=True) for each in (loss, expected))
    torch.testing.assert_close(found, true, rtol=1e-10, atol=1e-14)


def test_it_is_the_elbo_without_its_state(model):
    nll = torch.tensor(1.5, dtype=torch.float64)
    assert torch.equal(
        evidence_loss(nll, model, n_train=40, kl_weight=0.5), ELBO(model, n_train=40, kl_weight=0.5)(nll)
    )


@pytest.mark.parametrize("n_train", [0, 2.5, None, True])
def test_a_wrong_n_train_explains_itself(model, n_train):
    with pytest.raises(ValueError, match="`n_train` must be the number of training examples, an int >= 1; got"):
        evidence_loss(torch.tensor(1.0), model, n_train=n_train)
