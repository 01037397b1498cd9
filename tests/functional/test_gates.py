import math

import pytest
import torch

from vbdrop.functional import apply_gate
from vbdrop.functional.gates import gate_noise

SHAPES = [  # features, axis, noise
    ((4,), -1, (4,)),
    ((8, 4), -1, (8, 4)),
    ((8, 5, 4), -1, (8, 5, 4)),
    ((8, 4, 6), -2, (8, 4, 1)),
    ((8, 4, 6, 5), -3, (8, 4, 1, 1)),
    ((8, 4, 6, 5, 3), -4, (8, 4, 1, 1, 1)),
]


@pytest.mark.parametrize(("shape", "axis", "noise"), SHAPES)
def test_one_number_is_drawn_a_sample_and_unit(shape, axis, noise):
    drawn = gate_noise(torch.zeros(shape), axis)
    assert drawn.shape == noise
    assert drawn.unique().numel() == math.prod(noise)


@pytest.mark.parametrize(("shape", "axis", "noise"), SHAPES)
def test_every_unit_is_multiplied_by_its_own_mean(shape, axis, noise):
    x, mean = torch.randn(shape), torch.tensor([1.0, 0.0, -2.0, 0.5])
    gated = apply_gate(x, mean, None, axis).movedim(axis, -1)
    torch.testing.assert_close(gated, x.movedim(axis, -1) * mean)


def test_the_noise_is_shared_over_space_and_has_the_moments_of_the_gate():
    """40,000 samples; mean and variance within 5 standard errors."""
    n = 40_000
    mean, deviation = torch.tensor([1.0, -0.5, 2.0]), torch.tensor([0.5, 1.5, 0.0])
    x = torch.tensor([2.0, 1.0, -3.0]).view(1, 3, 1).expand(n, 3, 4)
    gated = apply_gate(x, mean, deviation, axis=-2)
    assert torch.equal(gated, gated[:, :, :1].expand_as(gated))
    scale, draws = x[0, :, 0], gated[:, :, 0]
    spread = scale.abs() * deviation
    assert ((draws.mean(0) - scale * mean).abs() <= 5 * spread / math.sqrt(n) + 1e-5).all()
    assert ((draws.var(0) - spread**2).abs() <= 5 * spread**2 * math.sqrt(2 / n) + 1e-9).all()
    correlations = torch.corrcoef(draws[:, :2].T) - torch.eye(2)
    assert correlations.abs().max() < 5 / math.sqrt(n)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_features_keep_their_dtype_and_the_noise_is_wide(dtype):
    x = torch.ones(2, 3, dtype=dtype)
    assert gate_noise(x, -1).dtype == torch.promote_types(dtype, torch.float32)
    assert apply_gate(x, torch.ones(3), torch.ones(3), -1).dtype == dtype
    assert apply_gate(x, torch.ones(3), None, -1).dtype == dtype


@pytest.mark.parametrize(("shape", "axis"), [((8, 1), -1), ((8, 1, 5, 5), -3), ((3, 8), -2), ((8, 4), -1)])
def test_features_that_do_not_fit_are_refused_rather_than_spread(shape, axis):
    """One feature would broadcast against three gates, where the plain layer would have raised an error."""
    message = rf"`x` must have 3 units on axis {axis}; got the shape \({', '.join(map(str, shape))}\)"
    if shape[axis] == 3:
        assert apply_gate(torch.ones(shape), torch.ones(3), None, axis).shape == shape
        return
    with pytest.raises(ValueError, match=message):
        apply_gate(torch.ones(shape), torch.ones(3), None, axis)


def test_the_gradients_of_mean_and_deviation():
    x = torch.tensor([[2.0, 3.0], [-1.0, 4.0]])
    mean, deviation = torch.ones(2, requires_grad=True), torch.full((2,), 0.5, requires_grad=True)
    torch.manual_seed(1)
    apply_gate(x, mean, deviation, -1).sum().backward()
    torch.manual_seed(1)
    noise = gate_noise(x, -1)
    torch.testing.assert_close(mean.grad, x.sum(0))
    torch.testing.assert_close(deviation.grad, (x * noise).sum(0))
