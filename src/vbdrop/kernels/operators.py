"""The kernels as operators of torch: what compiled code calls, since a compiler can see through neither C nor ctypes.

Each operator has its shapes for the compiler (``register_fake``) and its backward (``register_autograd``), which is an
operator too. A result that is not needed is an empty tensor.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from vbdrop.kernels import binding
from vbdrop.kernels.binding import Gates
from vbdrop.kernels.choice import readable

DRAWS = (torch.Tag.nondeterministic_seeded,)
"""For operators that draw noise: no two calls are the same."""


def _given(*tensors: Tensor | None) -> Any:  # noqa: ANN401 -- so many tensors, some of which may be None
    """The tensors as the kernels can read them."""
    return [None if t is None else readable(t) for t in tensors]


def _or_empty(like: Tensor, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(like.new_empty(0) if t is None else t for t in tensors)


def _needed(needs: Sequence[bool], gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    return tuple(gradient if need else None for need, gradient in zip(needs, gradients, strict=True))


@torch.library.custom_op("vbdrop::kl", mutates_args=(), device_types="cpu")
def kl(theta: Tensor, log_sigma2: Tensor, name: str, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """``share`` times what the C function of this name sums up, and the gradients of the KL."""
    theta, log_sigma2 = _given(theta, log_sigma2)
    total, by_theta, by_log_sigma2 = binding.kl(name, theta, log_sigma2, 1.0, need_gradients=True)
    value = torch.scalar_tensor(share * total, dtype=theta.dtype, device="cpu")
    return value, *_or_empty(theta, by_theta, by_log_sigma2)  # type: ignore[return-value]


@kl.register_fake
def _(theta: Tensor, log_sigma2: Tensor, name: str, share: float) -> tuple[Tensor, Tensor, Tensor]:
    return theta.new_empty(()), theta.new_empty(theta.shape), theta.new_empty(theta.shape)


def _keep_kl(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:  # noqa: ANN401
    ctx.save_for_backward(*output[1:])


def _kl_gradients(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return *(grad * saved for saved in ctx.saved_tensors), None, None


kl.register_autograd(_kl_gradients, setup_context=_keep_kl)


@torch.library.custom_op("vbdrop::posterior", mutates_args=(), device_types="cpu")
def posterior(theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """See `binding.posterior`."""
    theta, log_sigma2 = _given(theta, log_sigma2)
    return binding.posterior(theta, log_sigma2, limit)


@posterior.register_fake
def _(theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    return theta.new_empty(theta.shape), theta.new_empty(theta.shape)


@torch.library.custom_op("vbdrop::posterior_backward", mutates_args=(), device_types="cpu")
def posterior_backward(
    theta: Tensor, sigma2: Tensor, limit: float, by_weight: Tensor, by_sigma2: Tensor
) -> tuple[Tensor, Tensor]:
    """See `binding.posterior_gradients`."""
    theta, sigma2, by_weight, by_sigma2 = _given(theta, sigma2, by_weight, by_sigma2)
    return binding.posterior_gradients(theta, sigma2, limit, by_weight, by_sigma2)


@posterior_backward.register_fake
def _(theta: Tensor, sigma2: Tensor, limit: float, by_weight: Tensor, by_sigma2: Tensor) -> tuple[Tensor, Tensor]:
    return theta.new_empty(theta.shape), theta.new_empty(theta.shape)


def _keep_posterior(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    theta, _, ctx.limit = inputs
    ctx.save_for_backward(theta, output[1])


def _posterior_gradients(ctx: Any, by_weight: Tensor, by_sigma2: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return *posterior_backward(*ctx.saved_tensors, ctx.limit, by_weight, by_sigma2), None


posterior.register_autograd(_posterior_gradients, setup_context=_keep_posterior)


@torch.library.custom_op("vbdrop::perturbed", mutates_args=(), device_types="cpu", tags=DRAWS)
def perturbed(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """See `binding.perturbed`."""
    mean, variance = _given(mean, variance)
    return binding.perturbed(mean, variance, None)


@perturbed.register_fake
def _(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    return mean.new_empty(mean.shape), mean.new_empty(mean.shape)


def _keep_slope(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    ctx.save_for_backward(output[1])


def _perturbed_gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    (slope,) = ctx.saved_tensors
    return grad, grad * slope


perturbed.register_autograd(_perturbed_gradients, setup_context=_keep_slope)


@torch.library.custom_op("vbdrop::noisy_linear", mutates_args=(), device_types="cpu", tags=DRAWS)
def noisy_linear(
    x: Tensor, theta: Tensor, log_sigma2: Tensor | None, log_alpha: Tensor | None, bias: Tensor | None, limit: float
) -> tuple[Tensor, Tensor]:
    """See `binding.noisy_linear`."""
    alpha = None if log_alpha is None else log_alpha.exp()
    x, theta, log_sigma2, alpha, bias = _given(x, theta, log_sigma2, alpha, bias)
    return binding.noisy_linear(x, theta, log_sigma2, alpha, bias, limit, None)


@noisy_linear.register_fake
def _(
    x: Tensor, theta: Tensor, log_sigma2: Tensor | None, log_alpha: Tensor | None, bias: Tensor | None, limit: float
) -> tuple[Tensor, Tensor]:
    shape = x.shape[0], theta.shape[0]
    return x.new_empty(shape), x.new_empty(shape)


@torch.library.custom_op("vbdrop::noisy_linear_backward", mutates_args=(), device_types="cpu")
def noisy_linear_backward(
    grad: Tensor,
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    log_alpha: Tensor | None,
    slope: Tensor,
    limit: float,
    need_x: bool,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `binding.noisy_linear_gradients`."""
    alpha = None if log_alpha is None else log_alpha.exp()
    grad, x, theta, log_sigma2, alpha, slope = _given(grad, x, theta, log_sigma2, alpha, slope)
    gradients = binding.noisy_linear_gradients(
        grad, x, theta, log_sigma2, alpha, slope, limit, need_x=need_x, need_bias=need_bias
    )
    return _or_empty(x, *gradients)  # type: ignore[return-value]


@noisy_linear_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    theta: Tensor,
    log_sigma2: Tensor | None,
    log_alpha: Tensor | None,
    slope: Tensor,
    limit: float,
    need_x: bool,
    need_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    by_rate = theta if log_alpha is None else log_alpha
    by_x, by_bias = x.new_empty(x.shape if need_x else 0), x.new_empty(theta.shape[0] if need_bias else 0)
    return by_x, x.new_empty(theta.shape), x.new_empty(by_rate.shape), by_bias


def _keep_linear(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    *tensors, _, ctx.limit = inputs
    ctx.save_for_backward(*tensors, output[1])


def _linear_gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    need_x, _, _, _, need_bias, _ = ctx.needs_input_grad
    found = noisy_linear_backward(grad, *ctx.saved_tensors, ctx.limit, need_x, need_bias)
    by_x, by_theta, by_rate, by_bias = _needed([need_x, True, True, need_bias], found)
    rates = (by_rate, None) if ctx.saved_tensors[3] is None else (None, by_rate)
    return by_x, by_theta, *rates, by_bias, None


noisy_linear.register_autograd(_linear_gradients, setup_context=_keep_linear)


@torch.library.custom_op("vbdrop::gate", mutates_args=(), device_types="cpu", tags=DRAWS)
def gate(
    x: Tensor, mean: Tensor, log_sigma2: Tensor, limit: float, space: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `binding.gate`."""
    x, mean, log_sigma2 = _given(x, mean, log_sigma2)
    out, gates = binding.gate(x, mean, log_sigma2, limit, space, None)
    return out, *gates


@gate.register_fake
def _(x: Tensor, mean: Tensor, log_sigma2: Tensor, limit: float, space: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(mean.shape), x.new_empty(mean.shape), x.new_empty(x.numel() // space)


@torch.library.custom_op("vbdrop::gate_backward", mutates_args=(), device_types="cpu")
def gate_backward(
    grad: Tensor, x: Tensor, mean: Tensor, gates: list[Tensor], need_x: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `binding.gate_gradients`."""
    grad, x, mean = _given(grad, x, mean)
    gradients = binding.gate_gradients(grad, x, mean, Gates(*_given(*gates)), need_x=need_x)
    return _or_empty(x, *gradients)  # type: ignore[return-value]


@gate_backward.register_fake
def _(grad: Tensor, x: Tensor, mean: Tensor, gates: list[Tensor], need_x: bool) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape if need_x else 0), x.new_empty(mean.shape), x.new_empty(mean.shape)


def _keep_gate(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ANN401
    ctx.save_for_backward(*inputs[:2], *output[1:])


def _gate_gradients(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    x, mean, *gates = ctx.saved_tensors
    need_x = ctx.needs_input_grad[0]
    return *_needed([need_x, True, True], gate_backward(grad, x, mean, gates, need_x)), None, None


gate.register_autograd(_gate_gradients, setup_context=_keep_gate)


@torch.library.custom_op("vbdrop::gated_linear", mutates_args=(), device_types="cpu", tags=DRAWS)
def gated_linear(
    x: Tensor, mean: Tensor, log_sigma2: Tensor, weight: Tensor, bias: Tensor | None, limit: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """See `binding.gated_linear`."""
    x, mean, log_sigma2, weight, bias = _given(x, mean, log_sigma2, weight, bias)
    out, gates = binding.gated_linear(x, mean, log_sigma2, weight, bias, limit, None)
    return out, *gates


@gated_linear.register_fake
def _(
    x: Tensor, mean: Tensor, log_sigma2: Tensor, weight: Tensor, bias: Tensor | None, limit: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    gates = x.new_empty(mean.shape), x.new_empty(mean.shape), x.new_empty(x.shape[0] * x.shape[1])
    return x.new_empty(x.shape[0], weight.shape[0]), *gates


@torch.library.custom_op("vbdrop::gated_linear_backward", mutates_args=(), device_types="cpu")
def gated_linear_backward(
    grad: Tensor, x: Tensor, mean: Tensor, gates: list[Tensor], weight: Tensor, need_x: bool, need_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """See `binding.gated_linear_gradients`."""
    grad, x, mean, weight = _given(grad, x, mean, weight)
    gradients = binding.gated_linear_gradients(
        grad, x, mean, Gates(*_given(*gates)), weight, need_x=need_x, need_bias=need_bias
    )
    return _or_empty(x, *gradients)  # type: ignore[return-value]


@gated_linear_backward.register_fake
def _(
    grad: Tensor, x: Tensor, mean: Tensor, gates: list[Tensor], weight: Tensor, need_x: bool, need_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    by_x, by_bias = x.new_empty(x.shape if need_x else 0), x.new_empty(weight.shape[0] if need_bias else 0)
    return by_x, x.new_empty(mean.shape), x.new_empty(mean.shape), x.new_empty(weight.shape), by_bias


def _keep_gated_linear(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:  # noqa: ANN401
    x, mean, _, weight, *_ = inputs
    ctx.save_for_backward(x, mean, weight, *output[1:])


def _gated_linear_gradients(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    x, mean, weight, *gates = ctx.saved_tensors
    need_x, need_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
    found = gated_linear_backward(grad, x, mean, gates, weight, need_x, need_bias)
    return *_needed([need_x, True, True, True, need_bias], found), None


gated_linear.register_autograd(_gated_linear_gradients, setup_context=_keep_gated_linear)
