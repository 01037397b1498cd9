import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.compression import compress
from vbdrop.convert.example_inputs import as_arguments, copied


class Caching(nn.Module):
    """Keeps an activation, in a list too."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.seen = []

    def forward(self, x):
        self.last = self.fc(x)
        self.seen.append({"last": self.last})
        return self.last


def test_a_model_that_caches_an_activation_can_be_copied_and_compressed():
    model, x = Caching(), torch.randn(2, 4)
    y = model(x)
    other = copied(model)
    assert torch.equal(other.last, y)
    assert other.last.grad_fn is None
    assert other.seen[0]["last"].grad_fn is None
    assert model.last.grad_fn is not None
    with torch.no_grad():
        assert torch.equal(compress(model, x).model(x), y)


def test_a_model_that_caches_an_activation_gets_shared_gates_and_a_target_and_is_shrunk():
    x, y = torch.randn(20, 4), torch.randn(20, 3)
    model = Caching()
    model(x)
    small = vbdrop.shrink(model, (x, y), target=vbdrop.Target(macs=1.3, train=0), epochs=2, shrink_every=1)
    assert small.size <= 12 / 1.3
    assert model.last.grad_fn is not None
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=x)
    model(x)
    goal = vbdrop.Target(macs=1.3, steps=2, train=0, refine=0, example_inputs=x)
    elbo = vbdrop.ELBO(model, n_train=20, target=goal)
    optimizer = torch.optim.Adam(vbdrop.param_groups(model))
    for _ in range(2):
        elbo((model(x) - y).square().mean()).backward()
        elbo.step(optimizer)
        optimizer.step()
    assert elbo.observers[0].is_cut


def test_what_cannot_be_copied_is_named():
    class Locked(nn.Linear):
        def __deepcopy__(self, memo):
            raise RuntimeError("no copies")

    with pytest.raises(ValueError, match=r"`model` must be one that copy\.deepcopy can copy; .*no copies"):
        copied(nn.Sequential(Locked(2, 2)))


@pytest.mark.parametrize(
    "inputs", [torch.zeros(0, 4), (torch.zeros(2, 4), torch.zeros(0, 4)), {"x": torch.zeros(0, 4)}]
)
def test_an_empty_batch_is_an_error(inputs):
    with pytest.raises(ValueError, match=r"must hold at least one example; got a tensor of \[0, 4\]"):
        as_arguments(inputs)
    with pytest.raises(ValueError, match="at least one example"):
        compress(nn.Linear(4, 2), inputs)
