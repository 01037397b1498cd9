"""The kernels as torch operators, for compiled code: a compiler can see through neither C nor ctypes.

Each operator is a schema, the function of `vbdrop.kernels.binding` that it calls, the shapes of its results for the
compiler, and its backward, which is an operator too. A result that is None in `binding` is an empty tensor.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from vbdrop.kernels import binding
from vbdrop.kernels.choice import readable

LIBRARY = torch.library.Library("vbdrop", "DEF")  # type: ignore[no-untyped-call]
DRAWS = (torch.Tag.nondeterministic_seeded,)
"""For operators that draw noise: no two calls give the same result."""

Results = tuple[Tensor, ...]
Gradients = tuple[Tensor | None, ...]
Context = Any  # torch's own object, which carries values from the forward to the backward


def _operator(
    schema: str,
    run: Callable[..., Gradients],
    shapes: Callable[..., Results],
    keep: Callable[..., None] | None = None,
    gradients: Callable[..., Gradients] | None = None,
    *,
    tags: Sequence[torch.Tag] = (),
) -> Callable[..., Any]:
    """Register an operator.

    Args:
        schema: Its name, arguments and results.
        run: The computation; it gets all tensors in a form that the kernels can read.
        shapes: Empty tensors of the shapes of its results.
        keep: Saves what the backward needs.
        gradients: Its backward; None for an operator that is a backward itself.
        tags: Tags for torch.
    """
    name = schema.partition("(")[0]

    def readable_run(*arguments: Any) -> Results:  # noqa: ANN401 -- whatever the schema says
        results = run(*(readable(a) if isinstance(a, Tensor) else a for a in arguments))
        return tuple(arguments[0].new_empty(0) if result is None else result for result in results)

    LIBRARY.define(schema, tags=tuple(tags))  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, readable_run, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"vbdrop::{name}", shapes, lib=LIBRARY)
    if gradients is not None:
        torch.library.register_autograd(f"vbdrop::{name}", gradients, setup_context=keep, lib=LIBRARY)
    found: Callable[..., Any] = getattr(torch.ops.vbdrop, name).default
    return found


def _needed(needs: Sequence[bool], gradients: Sequence[Tensor]) -> Gradients:
    return tuple(gradient if need else None for need, gradient in zip(needs, gradients, strict=True))


def _like(*tensors: Tensor) -> Results:
    return tuple(t.new_empty(t.shape) for t in tensors)


# the KL


def _run_kl(theta: Tensor, log_sigma2: Tensor, name: str, share: float) -> Gradients:
    total, *gradients = binding.kl(name, theta, log_sigma2, 1.0, need_gradients=True)
    return torch.scalar_tensor(share * total, dtype=theta.dtype, device="cpu"), *gradients


def _keep_kl(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    ctx.save_for_backward(*output[1:])


kl = _operator(
    "kl(Tensor theta, Tensor log_sigma2, str name, float share) -> (Tensor, Tensor, Tensor)",
    _run_kl,
    lambda theta, log_sigma2, *_: (theta.new_empty(()), *_like(theta, theta)),
    _keep_kl,
    lambda ctx, grad, *_: (*(grad * saved for saved in ctx.saved_tensors), None, None),
)

# the means and variances of noisy weights, and a sample of the output


posterior_backward = _operator(
    "posterior_backward(Tensor theta, Tensor sigma2, float limit, Tensor by_weight, Tensor by_sigma2)"
    " -> (Tensor, Tensor)",
    binding.posterior_gradients,
    lambda theta, *_: _like(theta, theta),
)


def _keep_posterior(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    theta, _, ctx.limit = inputs
    ctx.save_for_backward(theta, output[1])


posterior = _operator(
    "posterior(Tensor theta, Tensor log_sigma2, float limit) -> (Tensor, Tensor)",
    binding.posterior,
    lambda theta, *_: _like(theta, theta),
    _keep_posterior,
    lambda ctx, *grads: (*posterior_backward(*ctx.saved_tensors, ctx.limit, *grads), None),
)


def _keep_slope(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    ctx.save_for_backward(output[1])


perturbed = _operator(
    "perturbed(Tensor mean, Tensor variance) -> (Tensor, Tensor)",
    binding.perturbed,
    lambda mean, _: _like(mean, mean),
    _keep_slope,
    lambda ctx, grad, _: (grad, grad * ctx.saved_tensors[0]),
    tags=DRAWS,
)

# a linear layer with noisy weights, or with one rate per input

_RATES = "Tensor? log_sigma2, Tensor? log_alpha"


def _exp(log_alpha: Tensor | None) -> Tensor | None:
    return None if log_alpha is None else log_alpha.exp()


def _shapes_of_linear_backward(grad: Tensor, x: Tensor, theta: Tensor, *rest: Any) -> Results:  # noqa: ANN401
    _, log_alpha, _, _, need_x, need_bias = rest
    by_x, by_bias = x.new_empty(x.shape if need_x else 0), x.new_empty(theta.shape[0] if need_bias else 0)
    return by_x, *_like(theta, theta if log_alpha is None else log_alpha), by_bias


def _keep_linear(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    *tensors, _, ctx.limit = inputs
    ctx.save_for_backward(*tensors, output[1])


def _linear_gradients(ctx: Context, grad: Tensor, _: Tensor) -> Gradients:
    need_x, _, _, _, need_bias, _ = ctx.needs_input_grad
    found = noisy_linear_backward(grad, *ctx.saved_tensors, ctx.limit, need_x, need_bias)
    by_x, by_theta, by_rate, by_bias = _needed([need_x, True, True, need_bias], found)
    rates = (by_rate, None) if ctx.saved_tensors[3] is None else (None, by_rate)
    return by_x, by_theta, *rates, by_bias, None


noisy_linear_backward = _operator(
    f"noisy_linear_backward(Tensor grad, Tensor x, Tensor theta, {_RATES}, Tensor slope, float limit, bool need_x,"
    " bool need_bias) -> (Tensor, Tensor, Tensor, Tensor)",
    lambda grad, x, theta, log_sigma2, log_alpha, *rest: binding.noisy_linear_gradients(
        grad, x, theta, log_sigma2, _exp(log_alpha), *rest
    ),
    _shapes_of_linear_backward,
)
noisy_linear = _operator(
    f"noisy_linear(Tensor x, Tensor theta, {_RATES}, Tensor? bias, float limit) -> (Tensor, Tensor)",
    lambda x, theta, log_sigma2, log_alpha, *rest: binding.noisy_linear(x, theta, log_sigma2, _exp(log_alpha), *rest),
    lambda x, theta, *_: (x.new_empty(x.shape[0], theta.shape[0]), x.new_empty(x.shape[0], theta.shape[0])),
    _keep_linear,
    _linear_gradients,
    tags=DRAWS,
)

# gates


def _keep_gate(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    ctx.save_for_backward(*inputs[:2], *output[1:])


def _gate_gradients(ctx: Context, grad: Tensor, *_: Tensor) -> Gradients:
    need_x = ctx.needs_input_grad[0]
    return *_needed([need_x, True, True], gate_backward(grad, *ctx.saved_tensors, need_x)), None, None


_GATES = "Tensor gate, Tensor deviation, Tensor noise"

gate_backward = _operator(
    f"gate_backward(Tensor grad, Tensor x, Tensor mean, {_GATES}, bool need_x) -> (Tensor, Tensor, Tensor)",
    lambda grad, x, mean, *rest: binding.gate_gradients(grad, x, mean, rest[:3], rest[3]),
    lambda grad, x, mean, *rest: (x.new_empty(x.shape if rest[3] else 0), *_like(mean, mean)),
)
gate = _operator(
    "gate(Tensor x, Tensor mean, Tensor log_sigma2, float limit, int space) -> (Tensor, Tensor, Tensor, Tensor)",
    binding.gate,
    lambda x, mean, _, limit, space: (*_like(x, mean, mean), x.new_empty(x.numel() // space)),
    _keep_gate,
    _gate_gradients,
    tags=DRAWS,
)

# a linear layer after gates


def _shapes_of_gated_linear_backward(grad: Tensor, x: Tensor, mean: Tensor, *rest: Any) -> Results:  # noqa: ANN401
    *_, weight, need_x, need_bias = rest
    by_x, by_bias = x.new_empty(x.shape if need_x else 0), x.new_empty(weight.shape[0] if need_bias else 0)
    return by_x, *_like(mean, mean, weight), by_bias


def _keep_gated_linear(ctx: Context, inputs: tuple[Any, ...], output: Results) -> None:
    x, mean, _, weight, *_ = inputs
    ctx.save_for_backward(x, mean, *output[1:], weight)


def _gated_linear_gradients(ctx: Context, grad: Tensor, *_: Tensor) -> Gradients:
    need_x, need_bias = ctx.needs_input_grad[0], ctx.needs_input_grad[4]
    found = gated_linear_backward(grad, *ctx.saved_tensors, need_x, need_bias)
    return *_needed([need_x, True, True, True, need_bias], found), None


gated_linear_backward = _operator(
    f"gated_linear_backward(Tensor grad, Tensor x, Tensor mean, {_GATES}, Tensor weight, bool need_x, bool need_bias)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    lambda grad, x, mean, *rest: binding.gated_linear_gradients(grad, x, mean, rest[:3], *rest[3:]),
    _shapes_of_gated_linear_backward,
)
gated_linear = _operator(
    "gated_linear(Tensor x, Tensor mean, Tensor log_sigma2, Tensor weight, Tensor? bias, float limit)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    binding.gated_linear,
    lambda x, mean, _, weight, *rest: (
        x.new_empty(x.shape[0], weight.shape[0]),
        *_like(mean, mean),
        x.new_empty(x.shape[0] * x.shape[1]),
    ),
    _keep_gated_linear,
    _gated_linear_gradients,
    tags=DRAWS,
)
