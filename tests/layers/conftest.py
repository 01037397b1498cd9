"""How the tests of this room make layers noisy, and the moments that a noisy layer's output must have."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vbdrop.layers import LAYERS, Gate, Mode, NoisyLayer, Rates, Units, Weights


def make_noisy(plain: nn.Module, *modes: Mode, outputs: bool = True) -> NoisyLayer:
    """A noisy copy of a plain layer; with `Units`, gated on both sides unless ``outputs`` is False."""
    layer = copy.deepcopy(plain)
    layer.__class__ = LAYERS[type(plain)]
    for mode in modes:
        layer.add_noise_(mode, outputs=outputs)
    return layer


@torch.no_grad()
def randomise(layer: NoisyLayer) -> NoisyLayer:
    """Random weights, rates and gates, of which about a third is dead: the first surely, the second surely not."""
    nn.init.normal_(layer.weight, std=0.5)
    posteriors: list[tuple[Any, float]] = []
    if isinstance(layer.noise, Weights):
        posteriors.append((layer, layer.noise.threshold))
    elif isinstance(layer.noise, Rates):
        layer.log_alpha.normal_(-0.5, 1.0)
    for gate in layer.children():
        gate.weight.normal_(1.0, 0.5)
        posteriors.append((gate, gate.mode.threshold))
    for holder, threshold in posteriors:
        log_alpha = torch.randn_like(holder.log_sigma2) * 1.5 + threshold - 0.6
        log_alpha.view(-1)[:2] = torch.tensor([threshold + 1, threshold - 1])
        holder.log_sigma2.copy_(holder.weight.square().log() + log_alpha)
    return layer


def mean_and_variance(holder: Any, threshold: float, masks_in_training: bool, noisy: bool) -> tuple[Tensor, Tensor]:
    """The posterior that a forward must use, by the definition of log_alpha, in float64."""
    mean, log_sigma2 = holder.weight.detach().double(), holder.log_sigma2.detach().double()
    dead = log_sigma2 - mean.square().log() >= threshold
    variance = log_sigma2.exp() * noisy
    if not holder.training:
        variance = variance.masked_fill(dead, 0)
    if not holder.training or masks_in_training:
        mean = mean.masked_fill(dead, 0)
    return mean, variance


@torch.no_grad()
def moments(layer: NoisyLayer, plain: nn.Module, x: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
    """The mean and variance of the layer's output for one batched example, in closed form, by the plain layer alone."""
    x, noisy = x.double(), layer.noise_is_on
    plain, weight = copy.deepcopy(plain).double(), layer.weight.detach().double()
    bias = None if layer.bias is None else layer.bias.detach().double()
    axis = 1 if x.dim() > 1 else 0
    along = (-1, *[1] * (x.dim() - axis - 1))

    def apply(x: Tensor, weight: Tensor, with_bias: bool = False) -> Tensor:
        parameters = {"weight": weight}
        if bias is not None:
            parameters["bias"] = bias if with_bias else torch.zeros_like(bias)
        return torch.func.functional_call(plain, parameters, (x,), options)

    def gate_of(name: str) -> tuple[Tensor, Tensor]:
        gate = layer._modules.get(name)
        if not isinstance(gate, Gate):
            return torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        return mean_and_variance(gate, gate.mode.threshold, gate.mode.mask_in_training, noisy)

    z, z_variance = (values.view(along) for values in gate_of("gate"))
    second_moment = (z**2 + z_variance) * x**2
    if isinstance(layer.noise, Weights):
        weight, sigma2 = mean_and_variance(layer, layer.noise.threshold, layer.noise.mask_in_training, noisy)
        variance = apply(second_moment, sigma2)
    elif isinstance(layer.noise, Rates) and noisy:
        alpha = layer.log_alpha.double().exp()
        per_unit = layer.noise.per == "unit"  # then alpha belongs to the input, whatever the layout of the weight
        scaled = second_moment * alpha.view(along) if per_unit else second_moment
        variance = apply(scaled, weight**2 if per_unit else weight**2 * alpha)
    else:
        variance = apply(second_moment, torch.zeros_like(weight))
    for unit in range(x.shape[axis]):  # a gate's noise is shared by all that its unit reaches
        alone = torch.zeros_like(x).index_copy_(axis, torch.tensor([unit]), x.narrow(axis, unit, 1))
        spread = z_variance if z_variance.numel() == 1 else z_variance.view(-1)[unit]
        variance = variance + spread * apply(alone, weight) ** 2
    mean = apply(z * x, weight, with_bias=True)
    o, o_variance = (values.view(along) for values in gate_of("output_gate"))
    return o * mean, (o**2 + o_variance) * (variance + mean**2) - o**2 * mean**2


@torch.no_grad()
def check_moments(layer: NoisyLayer, plain: nn.Module, x: Tensor, n: int = 20_000, **options: Any) -> None:
    """The layer's output over ``n`` draws has the moments of the closed form, within 5 standard errors."""
    mean, variance = moments(layer, plain, x, **options)
    draws = layer(x.expand(n, *x.shape[1:]), **options).double()
    assert draws.shape[1:] == mean.shape[1:]
    found = draws.mean(0, keepdim=True)
    centred = (draws - found).square()
    spread = centred.mean(0, keepdim=True)
    error_of_variance = (centred.square().mean(0, keepdim=True) - spread**2).clamp_min(0).div(n).sqrt()
    assert ((found - mean).abs() <= 5 * (variance / n).sqrt() + 1e-5 * (1 + mean.abs())).all()
    assert ((spread - variance).abs() <= 5 * error_of_variance + 1e-8).all()


@pytest.fixture
def noisy() -> Callable[..., NoisyLayer]:
    return make_noisy


@pytest.fixture
def randomised() -> Callable[..., NoisyLayer]:
    return lambda *arguments, **options: randomise(make_noisy(*arguments, **options))


@pytest.fixture
def closed_form() -> Callable[..., tuple[Tensor, Tensor]]:
    return moments


@pytest.fixture
def has_its_moments() -> Callable[..., None]:
    return check_moments


MODES: dict[str, tuple[Mode, ...]] = {
    "weights": (Weights(threshold=1.0),),
    "weights-unmasked": (Weights(threshold=1.0, mask_in_training=False, prior="log_uniform"),),
    "rates-weight": (Rates(per="weight"),),
    "rates-unit": (Rates(per="unit", prior="inverse_gamma"),),
    "rates-layer": (Rates(per="layer", prior="log_uniform"),),
    "units": (Units(),),
    "units-masked": (Units(mask_in_training=True, prior="inverse_gamma"),),
    "weights-units": (Weights(threshold=1.0), Units()),
}


@pytest.fixture(params=MODES)
def modes(request) -> tuple[Mode, ...]:
    return MODES[request.param]
