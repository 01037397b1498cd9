import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d, relu

import vbdrop
from vbdrop.compression.rewriting.memory_format import to_channels_last_
from vbdrop.functional import Convolution, posterior_reference, standard_normal_like, strided_as
from vbdrop.kernels import formulas_only

LAST = torch.channels_last


def images(*shape):
    return torch.empty(shape, memory_format=LAST)


@pytest.mark.parametrize("x", [torch.empty(4, 6), torch.empty(()), torch.empty(0, 3), torch.empty(2, 3, 4, 4)])
def test_contiguous_tensors_get_the_numbers_of_torch(x):
    torch.manual_seed(3)
    expected = torch.randn_like(x)
    torch.manual_seed(3)
    assert torch.equal(standard_normal_like(x), expected)


@pytest.mark.parametrize(
    "x",
    [
        images(2, 3, 4, 5),
        images(2, 3, 4, 5).double(),
        torch.empty(2, 3, 4, 5, 6, memory_format=torch.channels_last_3d),
        torch.empty(4, 6).t(),
        torch.empty(3, 5)[:, :2],
        torch.empty(3, 1).expand(3, 4),
        torch.empty(5, 2, 3).permute(2, 0, 1),
    ],
)
def test_other_tensors_get_numbers_in_their_memory_order(x):
    torch.manual_seed(3)
    noise = standard_normal_like(x)
    assert noise.shape == x.shape
    assert noise.dtype == x.dtype
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    assert noise.permute(order).is_contiguous()
    torch.manual_seed(3)
    assert torch.equal(noise.permute(order).flatten(), torch.randn(x.numel(), dtype=x.dtype))
    assert noise.unique().numel() == x.numel()


def test_the_numbers_are_standard_normal():
    torch.manual_seed(0)
    noise = standard_normal_like(images(50, 20, 16, 16))  # 256,000: standard errors of 0.002 and 0.0014
    assert abs(noise.mean().item()) < 0.01
    assert abs(noise.std().item() - 1) < 0.007
    assert abs((noise[:, 1:] * noise[:, :-1]).mean().item()) < 0.01


def test_numbers_for_batches_of_vmap_differ():
    batches = images(6, 4, 5, 5).unflatten(0, (3, 2))
    drawn = torch.vmap(standard_normal_like, randomness="different")(batches)
    assert drawn.shape == batches.shape
    assert drawn.unique().numel() == drawn.numel()


def test_strides_of_one_channel_follow_the_weight_and_keep_values_and_gradients():
    theta = images(5, 1, 3, 3).normal_().requires_grad_()
    small = strided_as(theta, theta.exp())
    assert small.stride() == theta.stride()
    assert torch.equal(small, theta.exp())
    weights = torch.randn(5, 1, 3, 3)
    (small * weights).sum().backward()
    assert torch.equal(theta.grad, weights * theta.detach().exp())
    contiguous = torch.randn(5, 1, 3, 3)
    assert strided_as(contiguous, contiguous.exp()).stride() == contiguous.stride()


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("mode", [vbdrop.Weights(), vbdrop.Rates(per="unit"), vbdrop.Rates(per="weight")])
def test_a_network_on_grey_images_stays_in_one_order(mode, kernels):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3))
    vbdrop.convert_(model, mode)
    to_channels_last_(model)
    seen = []
    for layer in model:
        layer.register_forward_hook(lambda _, __, out: seen.append(out.is_contiguous(memory_format=LAST)))
    x = torch.randn(3, 1, 8, 8)
    if kernels:
        model(x)
    else:
        with formulas_only():
            model(x)
    assert seen == [True] * 3


def test_mean_and_variance_of_grey_images_have_one_order():
    theta, log_sigma2 = images(4, 1, 3, 3).normal_(), images(4, 1, 3, 3).fill_(-40.0)
    product = Convolution((1, 1), (0, 0), (1, 1))
    x = torch.randn(2, 1, 6, 6)
    outputs = [product(x, tensor) for tensor in posterior_reference(theta, log_sigma2, 3.0)]
    assert len({out.stride() for out in outputs}) == 1
    assert outputs[0].is_contiguous(memory_format=LAST)
    torch.testing.assert_close(max_pool2d(relu(outputs[0]), 2), max_pool2d(relu(conv2d(x, theta.contiguous())), 2))
