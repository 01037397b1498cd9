"""The kernels with their gradients: autograd functions for eager code, torch operators for compiled code.

`torch.compile` cannot trace C or ctypes, so each function of `vbdrop.kernels.binding` is also an operator: a schema,
the function, and the shapes of its results; a result of None becomes an empty tensor. Eager code calls the functions
directly, which is faster. What a backward keeps and what it returns are written once for both.
"""

from collections.abc import Callable, Sequence
from types import new_class
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vbdrop.kernels import binding
from vbdrop.kernels.choice import check_unreplaced, in_order_of, layouts, readable
from vbdrop.kernels.first_order_only import first_order_only

LIBRARY = torch.library.Library("vbdrop", "DEF")  # type: ignore[no-untyped-call]

Results = tuple[Tensor, ...]
Gradients = tuple[Tensor | None, ...]
Backward = Callable[..., Gradients]
Context = Any  # torch's own object, which carries values from the forward to the backward


class Operator(NamedTuple):
    """A function of tensors, and the operator that calls it after making all tensors readable for the kernels."""

    run: Callable[..., Gradients]
    call: Any


def _operator(
    schema: str,
    run: Callable[..., Gradients],
    shapes: Callable[..., Results],
    *,
    draws: bool = False,
    elementwise: bool = False,
) -> Operator:
    """Register an operator.

    Args:
        schema: Its name, arguments and results.
        run: The computation.
        shapes: Returns empty tensors with the shapes of its results.
        draws: Whether it draws noise, so that no two calls give the same result.
        elementwise: Whether all tensors have one shape. The compiler may then choose their memory order (such as
            channels last for images), and the results have the order of the first argument.
    """
    name = schema.partition("(")[0]

    def readable_run(*arguments: Any) -> Results:  # noqa: ANN401 -- whatever the schema says
        like = arguments[0]
        given = (
            (in_order_of(like, a) if elementwise else readable(a)) if isinstance(a, Tensor) else a for a in arguments
        )
        return tuple(like.new_empty(0) if result is None else result for result in run(*given))

    tags = [torch.Tag.nondeterministic_seeded] if draws else []
    tags += [torch.Tag.flexible_layout] if elementwise else []
    LIBRARY.define(schema, tags=tuple(tags))  # type: ignore[no-untyped-call]
    LIBRARY.impl(name, readable_run, "CPU")  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"vbdrop::{name}", shapes, lib=LIBRARY)
    return Operator(run, getattr(torch.ops.vbdrop, name).default)


def _differentiable(
    forward: Operator,
    kept: Callable[..., Sequence[Tensor | None]],
    gradients: Callable[..., Gradients],
    backward: Operator | None = None,
    outputs: int = 1,
) -> Callable[..., Any]:
    """A function of tensors with its gradients, for eager and for compiled code.

    Args:
        forward: Computes the outputs, and after them what only the backward needs.
        kept: Selects the tensors that the backward needs, given the arguments and these results.
        gradients: Returns the gradients of the arguments, given the backward, torch's context, the kept tensors and
            the gradients of the outputs.
        backward: The operator that computes the gradients; None if ``gradients`` needs none.
        outputs: How many outputs there are: one, or all results.
    """

    def keep(ctx: Context, inputs: tuple[Any, ...], output: Gradients) -> Sequence[Tensor | None]:
        tensors = kept(inputs, output)
        ctx.save_for_backward(*tensors)
        ctx.numbers = tuple(value for value in inputs if isinstance(value, float))
        return tensors

    def eager_forward(ctx: Context, *given: Any) -> Any:  # noqa: ANN401 -- what the schema says
        results = forward.run(*given)
        ctx.layouts = layouts(keep(ctx, given, results))
        return results[0] if outputs == 1 else results

    def eager_backward(ctx: Context, *grads: Tensor) -> Gradients:
        tensors = ctx.saved_tensors  # read only once: under checkpointing, a second access fails
        check_unreplaced(tensors, ctx.layouts)
        return gradients(backward and backward.run, ctx, tensors, *grads)

    def compiled_backward(ctx: Context, *grads: Tensor) -> Gradients:
        return gradients(backward and backward.call, ctx, ctx.saved_tensors, *grads)

    name = forward.call.name()
    torch.library.register_autograd(name, compiled_backward, setup_context=keep, lib=LIBRARY)
    methods = {"forward": staticmethod(eager_forward), "backward": staticmethod(first_order_only(eager_backward))}
    camel = name.partition("::")[2].title().replace("_", "")
    function: Any = new_class(camel, (torch.autograd.Function,), exec_body=lambda body: body.update(methods))

    def call(*given: Any) -> Any:  # noqa: ANN401
        if torch.compiler.is_compiling():
            results = forward.call(*given)
            return results[0] if outputs == 1 else results
        return function.apply(*given)

    return call


def _like(*tensors: Tensor) -> Results:
    return tuple(t.new_empty(t.shape) for t in tensors)


def _two_like(tensor: Tensor, *_: Any) -> Results:  # noqa: ANN401
    return torch.empty_like(tensor), torch.empty_like(tensor)  # in the same order


# the KL, for compiled code only: eager code has one autograd function for all tensors, in `vbdrop.kernels.kl`


def _kl_and_gradients(theta: Tensor, log_sigma2: Tensor, name: str, share: float) -> Gradients:
    total, *gradients = binding.kl(name, theta, log_sigma2, 1.0, need_gradients=True)
    return torch.scalar_tensor(share * total, dtype=theta.dtype, device="cpu"), *gradients


kl = _differentiable(
    _operator(
        "kl(Tensor theta, Tensor log_sigma2, str name, float share) -> (Tensor, Tensor, Tensor)",
        _kl_and_gradients,
        lambda theta, *_: (theta.new_empty(()), *_two_like(theta)),
        elementwise=True,
    ),
    lambda inputs, output: output[1:],
    lambda _, ctx, tensors, grad, *__: (*(grad * gradient for gradient in tensors), None, None),
)

# the means and variances of noisy weights, and a sample of the output


def _posterior_gradients(theta: Tensor, sigma2: Tensor, limit: float, *grads: Tensor) -> Gradients:
    theta, sigma2, *given = (in_order_of(sigma2, tensor) for tensor in (theta, sigma2, *grads))
    return binding.posterior_gradients(theta, sigma2, limit, *given)


posterior = _differentiable(
    _operator(
        "posterior(Tensor theta, Tensor log_sigma2, float limit) -> (Tensor, Tensor)",
        binding.posterior,
        _two_like,
        elementwise=True,
    ),
    lambda inputs, output: (inputs[0], output[1]),
    lambda backward, ctx, tensors, *grads: (*backward(*tensors, *ctx.numbers, *grads), None),
    _operator(
        "posterior_backward(Tensor theta, Tensor sigma2, float limit, Tensor by_weight, Tensor by_sigma2)"
        " -> (Tensor, Tensor)",
        _posterior_gradients,
        _two_like,
        elementwise=True,
    ),
    outputs=2,
)
perturbed = _differentiable(
    _operator(
        "perturbed(Tensor mean, Tensor variance, Tensor? noise=None) -> (Tensor, Tensor)",
        binding.perturbed,
        _two_like,
        draws=True,
        elementwise=True,
    ),
    lambda inputs, output: output[1:],
    lambda _, ctx, tensors, grad, *__: (grad, grad * tensors[0], None),
)

# a linear layer with noisy weights, or with one rate per input

_RATES = "Tensor? log_sigma2, Tensor? log_alpha"


def _shapes_of_linear_backward(grad: Tensor, x: Tensor, theta: Tensor, *rest: Any) -> Results:  # noqa: ANN401
    _, log_alpha, _, _, need_x, need_bias = rest
    by_x, by_bias = x.new_empty(x.shape if need_x else 0), x.new_empty(theta.shape[0] if need_bias else 0)
    return by_x, *_like(theta, theta if log_alpha is None else log_alpha), by_bias


def _linear_gradients(backward: Backward, ctx: Context, tensors: Gradients, grad: Tensor, *_: Tensor) -> Gradients:
    need_x, _, _, _, need_bias, *_ = ctx.needs_input_grad
    by_x, by_theta, by_rate, by_bias = backward(readable(grad), *tensors, *ctx.numbers, need_x, need_bias)
    rates = (by_rate, None) if tensors[3] is None else (None, by_rate)
    return by_x if need_x else None, by_theta, *rates, by_bias if need_bias else None, None, None


noisy_linear = _differentiable(
    _operator(
        f"noisy_linear(Tensor x, Tensor theta, {_RATES}, Tensor? bias, float limit, Tensor? noise=None)"
        " -> (Tensor, Tensor)",
        binding.noisy_linear,
        lambda x, theta, *_: (x.new_empty(x.shape[0], theta.shape[0]), x.new_empty(x.shape[0], theta.shape[0])),
        draws=True,
    ),
    lambda inputs, output: (*inputs[:4], output[1]),
    _linear_gradients,
    _operator(
        f"noisy_linear_backward(Tensor grad, Tensor x, Tensor theta, {_RATES}, Tensor slope, float limit, bool need_x,"
        " bool need_bias) -> (Tensor, Tensor, Tensor, Tensor)",
        binding.noisy_linear_gradients,
        _shapes_of_linear_backward,
    ),
)

# gates, and a linear layer after them

_GATES = "Tensor gate, Tensor deviation, Tensor noise"


def _gate_gradients(backward: Backward, ctx: Context, tensors: Gradients, grad: Tensor, *_: Tensor) -> Gradients:
    need_x = ctx.needs_input_grad[0]
    by_x, by_mean, by_log_sigma2 = backward(readable(grad), *tensors, need_x)
    return by_x if need_x else None, by_mean, by_log_sigma2, None, None, None


gate = _differentiable(
    _operator(
        "gate(Tensor x, Tensor mean, Tensor log_sigma2, float limit, int space, Tensor? noise=None)"
        " -> (Tensor, Tensor, Tensor, Tensor)",
        binding.gate,
        lambda x, mean, _, limit, space, *__: (*_like(x, mean, mean), x.new_empty(x.numel() // space)),
        draws=True,
    ),
    lambda inputs, output: (*inputs[:2], *output[1:]),
    _gate_gradients,
    _operator(
        f"gate_backward(Tensor grad, Tensor x, Tensor mean, {_GATES}, bool need_x) -> (Tensor, Tensor, Tensor)",
        binding.gate_gradients,
        lambda grad, x, mean, *rest: (x.new_empty(x.shape if rest[3] else 0), *_like(mean, mean)),
    ),
)


def _shapes_of_gated_linear_backward(grad: Tensor, x: Tensor, mean: Tensor, *rest: Any) -> Results:  # noqa: ANN401
    *_, weight, need_x, need_bias = rest
    by_x, by_bias = x.new_empty(x.shape if need_x else 0), x.new_empty(weight.shape[0] if need_bias else 0)
    return by_x, *_like(mean, mean, weight), by_bias


def _gated_linear_gradients(
    backward: Backward, ctx: Context, tensors: Gradients, grad: Tensor, *_: Tensor
) -> Gradients:
    need_x, _, _, _, need_bias, *_ = ctx.needs_input_grad
    by_x, *found, by_bias = backward(readable(grad), *tensors, need_x, need_bias)
    return by_x if need_x else None, *found, by_bias if need_bias else None, None, None


gated_linear = _differentiable(
    _operator(
        "gated_linear(Tensor x, Tensor mean, Tensor log_sigma2, Tensor weight, Tensor? bias, float limit,"
        " Tensor? noise=None) -> (Tensor, Tensor, Tensor, Tensor)",
        binding.gated_linear,
        lambda x, mean, _, weight, *rest: (
            x.new_empty(x.shape[0], weight.shape[0]),
            *_like(mean, mean),
            x.new_empty(x.shape[0] * x.shape[1]),
        ),
        draws=True,
    ),
    lambda inputs, output: (*inputs[:2], *output[1:], inputs[3]),
    _gated_linear_gradients,
    _operator(
        f"gated_linear_backward(Tensor grad, Tensor x, Tensor mean, {_GATES}, Tensor weight, bool need_x,"
        " bool need_bias) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        binding.gated_linear_gradients,
        _shapes_of_gated_linear_backward,
    ),
)
