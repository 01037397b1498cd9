import copy

import pytest
import torch
from torch import nn

from vbdrop.layers import Rates, Units, Weights

pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")  # torch's own, of its layer

CASES = {  # a plain layer with 4 input channels, and the size of its input
    "stride": (nn.Conv2d(4, 6, 3, stride=2), (5, 6)),
    "padding": (nn.Conv1d(4, 6, 3, padding=2), (5,)),
    "uneven": (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(0, 2), dilation=(1, 2)), (5, 4)),
    "uneven-3d": (nn.Conv3d(4, 3, (1, 2, 3), stride=(1, 2, 1), padding=(0, 1, 2)), (2, 3, 3)),
    "dilation": (nn.Conv1d(4, 6, 3, dilation=2), (7,)),
    "groups": (nn.Conv2d(4, 6, 2, groups=2), (3, 3)),
    "depthwise": (nn.Conv2d(4, 8, 3, groups=4, padding=1), (3, 3)),
    "no-bias": (nn.Conv3d(4, 3, 2, bias=False), (3, 2, 3)),
    "valid": (nn.Conv2d(4, 3, 2, padding="valid"), (3, 4)),
    "same-odd": (nn.Conv2d(4, 3, 3, padding="same", groups=1), (3, 4)),
    "same-even": (nn.Conv2d(4, 3, (2, 4), padding="same"), (3, 4)),
    "same-even-1d": (nn.Conv1d(4, 3, 4, padding="same", dilation=3), (6,)),
    "same-even-3d": (nn.Conv3d(4, 2, (2, 1, 4), padding="same"), (2, 2, 3)),
    "same-even-circular": (nn.Conv2d(4, 3, 2, padding="same", padding_mode="circular"), (3, 4)),
    "circular-1d": (nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"), (4,)),
    "reflect-1d": (nn.Conv1d(4, 3, 3, padding=2, padding_mode="reflect", groups=1), (4,)),
    "replicate-2d": (nn.Conv2d(4, 6, 3, padding=(2, 1), padding_mode="replicate", groups=2), (3, 3)),
    "circular-2d": (nn.Conv2d(4, 3, 3, padding=(2, 1), stride=2, padding_mode="circular"), (4, 4)),
    "reflect-2d": (nn.Conv2d(4, 3, 3, padding=(0, 1), dilation=(1, 2), padding_mode="reflect"), (4, 5)),
    "replicate-3d": (nn.Conv3d(4, 2, 2, padding=1, padding_mode="replicate"), (2, 2, 2)),
    "circular-3d": (nn.Conv3d(4, 2, 2, padding=(1, 0, 1), padding_mode="circular"), (2, 2, 2)),
    "transposed-1d": (nn.ConvTranspose1d(4, 6, 3, stride=3, padding=1, output_padding=2, groups=2), (3,)),
    "transposed-2d": (nn.ConvTranspose2d(4, 6, (2, 3), stride=(2, 1), dilation=(1, 2), groups=2, bias=False), (2, 3)),
    "transposed-3d": (nn.ConvTranspose3d(4, 2, 2, stride=(1, 2, 1), output_padding=(0, 1, 0)), (2, 2, 2)),
    "transposed-depthwise": (nn.ConvTranspose2d(4, 8, 2, groups=4), (2, 2)),
}


@pytest.fixture(params=CASES)
def case(request):
    plain, size = CASES[request.param]
    return copy.deepcopy(plain), torch.randn(2, 4, *size)


@pytest.mark.parametrize("modes", [(Weights(), Units()), (Rates(),)], ids=["weights-units", "rates"])
def test_every_option_is_that_of_the_plain_layer_in_eval(case, noisy, modes):
    plain, x = case
    layer = noisy(plain, *modes).eval()
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=1e-6)
    torch.testing.assert_close(layer(x[0]), plain(x[0]), rtol=0, atol=1e-6)


def test_every_option_has_the_moments_of_the_closed_form_with_noise_on_weights_and_units(
    case, randomised, has_its_moments
):
    plain, x = case
    has_its_moments(randomised(plain, Weights(threshold=1.0), Units()).train(), plain, x[:1])


def test_every_option_has_the_moments_of_the_closed_form_with_a_rate_a_unit(case, randomised, has_its_moments):
    plain, x = case
    has_its_moments(randomised(plain, Rates(per="unit")).train(), plain, x[:1])


def test_every_option_folds_its_gates(case, randomised):
    plain, x = case
    layer = randomised(plain, Weights(threshold=1.0), Units()).eval()
    expected = layer(x)
    layer.make_plain_()
    layer.__class__ = type(plain)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_every_option_has_the_gradients_of_the_plain_formula(case, randomised):
    """In float64, with the same draws, to 1e-10."""
    plain, x = case
    layer = randomised(plain, Weights(threshold=1.0)).double().train()
    results = []
    for layer.fused in (True, False):
        leaf = x.double().requires_grad_()
        torch.manual_seed(5)
        out = layer(leaf)
        gradients = torch.autograd.grad(out.square().sum(), (leaf, *layer.parameters()))
        results.append((out.detach(), *gradients))
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("plain", "size"),
    [(nn.ConvTranspose1d(4, 3, 3, stride=3), [17]), (nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1), [10, 9])],
    ids=["1d", "2d"],
)
def test_the_output_size_of_a_transposed_convolution(plain, size, noisy, randomised, has_its_moments):
    x = torch.randn(2, 4, *(5,) * len(size))
    layer = noisy(plain, Weights()).eval()
    torch.testing.assert_close(layer(x, output_size=size), plain(x, output_size=size), rtol=0, atol=1e-6)
    has_its_moments(randomised(plain, Weights(threshold=1.0)).train(), plain, x[:1], output_size=size)
    with pytest.raises(ValueError, match="output size"):
        layer(x, output_size=[1] * len(size))


def test_options_that_were_changed_after_the_layer_was_made_count(noisy):
    """As in networks for segmentation, which turn strides into dilation."""
    plain, x = nn.Conv2d(4, 3, 3, stride=2, padding=1), torch.randn(2, 4, 7, 7)
    plain.stride, plain.dilation, plain.padding = (1, 1), (2, 2), (2, 2)
    assert plain(x).shape[-1] == 7
    layer = noisy(plain, Weights()).eval()
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=1e-6)
    plain.padding = layer.padding = "same"
    plain.dilation = layer.dilation = (3, 3)
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=1e-6)


def test_a_batch_of_nothing_trains(randomised):
    layer = randomised(nn.Conv2d(4, 6, 2), Weights(threshold=1.0), Units()).train()
    out = layer(torch.zeros(0, 4, 5, 5))
    out.sum().backward()
    assert out.shape == (0, 6, 4, 4)
    assert (layer.weight.grad == 0).all()


@pytest.mark.parametrize("modes", [(Weights(),), (Units(),), (Rates(),)], ids=str)
def test_the_wrong_number_of_channels_is_an_error_as_in_the_plain_layer(noisy, modes):
    layer = noisy(nn.Conv2d(4, 6, 2), *modes)
    for channels in (1, 3, 8):
        with pytest.raises((RuntimeError, ValueError), match=r"channels|units on axis"):
            layer(torch.ones(2, channels, 5, 5))


def test_channels_last_is_the_same(randomised):
    layer = randomised(nn.Conv2d(4, 6, 3, padding=1), Weights(threshold=1.0), Units()).train()
    x = torch.randn(2, 4, 5, 5)
    results = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        other = copy.deepcopy(layer).to(memory_format=memory_format)
        torch.manual_seed(5)
        noise_free = other.eval()(x.to(memory_format=memory_format))
        out = other.train()(x.to(memory_format=memory_format))
        out.square().sum().backward()
        results.append(noise_free.detach())
        assert all(p.grad.isfinite().all() for p in other.parameters())
    torch.testing.assert_close(*results)
