import pytest
import torch
from torch import nn
from torch.nn import functional as F

import vbdrop
from vbdrop.layers.counted_norm import CountedNorm, count_, epsilon_of, kind_of

NORMS = {
    "layer": lambda n: nn.LayerNorm(n, eps=1e-3),
    "unscaled": lambda n: nn.LayerNorm(n, elementwise_affine=False),
    "rms": lambda n: nn.RMSNorm(n, eps=1e-3),
    "rms of the dtype": nn.RMSNorm,
}


class Images(nn.LayerNorm):
    """Over the channels of images, as in ConvNeXt."""

    def forward(self, x):
        return F.layer_norm(x.permute(0, 2, 3, 1), self.normalized_shape, self.weight, self.bias, self.eps).permute(
            0, 3, 1, 2
        )


class Root(nn.Module):
    """As Llama has it."""

    def __init__(self, width, eps=1e-3):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        wide = x.float()
        variance = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(variance + self.variance_epsilon)).to(x.dtype)


class Shifted(Root):
    """As Gemma has it: the weight is added to 1."""

    def forward(self, x):
        return super().forward(x) * (1 + 1 / self.weight)


def randomised(norm):
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_the_channels_that_stay_come_out_as_with_all_of_them(name, shift):
    torch.manual_seed(0)
    whole, part = randomised(NORMS[name](9)).double(), NORMS[name](6).double()
    part.load_state_dict({key: value[:6] for key, value in whole.state_dict().items()})
    x = torch.cat([torch.randn(4, 2, 6) + shift, torch.zeros(4, 2, 3)], -1).double()
    counted = count_(part, "rms" if "rms" in name else "layer", 9)
    torch.testing.assert_close(counted(x[..., :6]), whole(x)[..., :6], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sizes", [(5,), (3, 4), (2, 3, 4)])
def test_one_group_counts_the_channels_at_every_position(sizes):
    torch.manual_seed(0)
    whole, x = randomised(nn.GroupNorm(1, 6)).double(), torch.randn(2, 6, *sizes).double() + 3
    x[:, 4:] = 0
    part = nn.GroupNorm(1, 4).double()
    part.load_state_dict({key: value[:4] for key, value in whole.state_dict().items()})
    counted = count_(part, "group", 6, from_end=1 + len(sizes))
    torch.testing.assert_close(counted(x[:, :4]), whole(x)[:, :4], rtol=1e-12, atol=1e-12)


def test_in_float32_it_is_as_exact_as_the_norm_itself():
    torch.manual_seed(0)
    whole, x = nn.LayerNorm(600), torch.cat([torch.randn(8, 400) + 20, torch.zeros(8, 200)], -1)
    wanted = whole.double()(x.double())[:, :400]
    counted = count_(nn.LayerNorm(400), "layer", 600)
    assert (counted(x[:, :400]) - wanted).abs().max() < 1e-5


def test_channels_of_images_and_a_scale():
    torch.manual_seed(0)
    norm, x = randomised(Images(5)), torch.randn(2, 5, 3, 4)
    scaled = count_(randomised(Images(5)), "layer", 5, from_end=3)
    scaled.load_state_dict(norm.state_dict())
    scaled.scale = nn.Parameter(torch.tensor([1.0, 0.0, 2.0, 0.5, 1.0]))
    torch.testing.assert_close(scaled(x), norm(x * scaled.scale[:, None, None]))
    assert "5 of 5 channels" in repr(scaled)


def test_half_precision_is_computed_in_float32():
    counted = count_(nn.LayerNorm(300), "layer", 400).bfloat16()
    x = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)).bfloat16()
    wanted = count_(nn.LayerNorm(300), "layer", 400)(x.float())
    assert counted(x).dtype == torch.bfloat16
    assert (counted(x).float() - wanted).abs().max() < 0.02


def test_a_formula_is_found_by_trying():
    assert kind_of(randomised(nn.LayerNorm(4)), 4) == kind_of(nn.LayerNorm(4, elementwise_affine=False), 4) == "layer"
    assert kind_of(nn.RMSNorm(4), 4) == kind_of(randomised(Root(4)), 4) == "rms"
    assert kind_of(Images(4), 4, from_end=3) == "layer"
    assert (
        kind_of(randomised(nn.GroupNorm(1, 4)), 4, from_end=3) == kind_of(nn.GroupNorm(1, 4), 4, from_end=2) == "group"
    )
    assert kind_of(nn.GroupNorm(2, 4), 4, from_end=3) is None
    assert kind_of(Images(4), 4) is None
    for other in (Shifted(4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(5), nn.Sequential(nn.LayerNorm(4))):
        assert kind_of(other, 4) is None


def test_a_norm_keeps_its_parameters_and_its_epsilon():
    norm = Root(4, eps=0.5)
    weight = norm.weight
    counted = count_(norm, "rms", 6)
    assert counted is norm
    assert counted.weight is weight
    assert isinstance(counted, CountedNorm)
    assert epsilon_of(counted) == 0.5


class Literal(nn.Module):
    """A layer normalisation whose epsilon no attribute holds."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5)


class LiteralRoot(Root):
    """An epsilon that is not the one of the dtype."""

    def __init__(self, width):
        super().__init__(width)
        del self.variance_epsilon
        self.variance = 1e-6

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance)


@pytest.mark.parametrize("norm", [Literal(8), LiteralRoot(8)])
def test_a_norm_with_an_unknown_epsilon_is_none(norm):
    assert kind_of(norm, 8) is None


def test_a_norm_with_an_epsilon_of_zero_is_one():
    assert kind_of(nn.LayerNorm(8, eps=0.0), 8) == "layer"


def test_a_layer_norm_without_an_epsilon_cannot_count():
    with pytest.raises(ValueError, match="Literal must have a float under one of eps, variance_epsilon, epsilon"):
        count_(Literal(8), "layer", 9)


def test_padding_tokens_do_not_become_nan():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 8, padding_idx=0), Literal(8), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        model[0].weight[:, :3] = 0.0
        model[2].weight[:, :3] = 0.0
    small = vbdrop.compress(model, torch.randint(1, 10, (4, 5)), rewrite=False).model
    padding = torch.zeros(1, 5, dtype=torch.long)
    torch.testing.assert_close(small(padding), model(padding))


def test_images_leave_it_in_the_memory_order_of_the_norm_itself():
    x = torch.randn(2, 5, 3, 4)
    wanted, found = Images(5)(x), count_(Images(5), "layer", 9, from_end=3)(x)
    assert found.stride() == wanted.stride() != x.stride()
    last = x.permute(0, 2, 3, 1)  # channels last by a view, which linear layers would have to copy
    assert count_(nn.LayerNorm(5), "layer", 9)(last).stride() == nn.LayerNorm(5)(last).stride() != last.stride()
