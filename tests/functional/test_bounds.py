import pytest
import torch

from vbdrop.functional import upper_bounded


def test_the_value_is_the_smaller_of_the_two():
    assert upper_bounded(torch.tensor([-3.0, 0.5, 7.0]), 0.5).tolist() == [-3.0, 0.5, 0.5]


def test_without_a_bound_it_is_the_tensor_itself():
    value = torch.randn(3)
    assert upper_bounded(value, None) is value


@pytest.mark.parametrize(
    ("value", "grad", "passed"),
    [
        (-1.0, 2.0, 2.0),  # inside: both directions pass
        (-1.0, -2.0, -2.0),
        (0.0, 2.0, 2.0),  # at the bound: descent may go in, and not out
        (0.0, -2.0, 0.0),
        (5.0, 2.0, 2.0),  # beyond it: the same
        (5.0, -2.0, 0.0),
    ],
)
def test_only_the_gradient_that_pushes_outwards_is_stopped(value, grad, passed):
    value = torch.tensor(value, requires_grad=True)
    upper_bounded(value, 0.0).backward(torch.tensor(grad))
    assert value.grad.item() == passed


@pytest.mark.parametrize("start", [-0.5, 2.0])
def test_descent_stays_at_the_bound_and_comes_back_when_the_loss_turns(start):
    value = torch.tensor(start, requires_grad=True)
    optimizer = torch.optim.SGD([value], lr=0.1)

    def descend(target):
        for _ in range(60):
            optimizer.zero_grad()
            (upper_bounded(value, 0.0) - target).square().backward()
            optimizer.step()
        return value.item()

    assert descend(target=1.0) <= max(start, 0.2), "it does not run away"
    assert descend(target=-1.0) == pytest.approx(-1.0, abs=1e-3)


def test_a_plain_clamp_never_comes_back():
    value = torch.tensor(2.0, requires_grad=True)
    (value.clamp_max(0.0) + 1.0).square().backward()
    assert value.grad.item() == 0.0


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own, for forward mode
def test_it_can_be_transformed():
    value = torch.tensor([-1.0, 2.0])
    by_value = torch.func.vmap(torch.func.grad(lambda v: -upper_bounded(v, 0.0)))(value)
    assert by_value.tolist() == [-1.0, 0.0]
    back = torch.func.vmap(torch.func.grad(lambda v: upper_bounded(v, 0.0)))(value)
    assert back.tolist() == [1.0, 1.0]
    _, along = torch.func.jvp(lambda v: upper_bounded(v, 0.0), (value,), (torch.ones(2),))
    assert along.tolist() == [1.0, 0.0]
