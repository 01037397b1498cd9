"""Activations and other functions of one value, as C expressions of `v`."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

Arguments = dict[str, Any]
Bound = float | Tensor | None

NOT_FINITE = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
"""What numpy prints -> the macro of math.h."""


def literal(value: float) -> str:
    """`value` as a C constant of type float, with the fewest digits that round-trip.

    A value too large for a float is infinite, as in torch.

    Example:
        >>> literal(0.1), literal(1.0), literal(-1e-30), literal(-math.inf)
        ('0.1f', '1.0f', '-1e-30f', '-INFINITY')
    """
    with np.errstate(over="ignore"):
        text = str(np.float32(value))
    return NOT_FINITE.get(text) or f"{text}f"


def _clamp(low: Bound, high: Bound) -> str:
    low, high = _number(low), _number(high)
    if any(bound is not None and np.isnan(np.float32(bound)) for bound in (low, high)):
        return "v + NAN"
    if low is not None and high is not None:
        low = min(low, high)  # if the bounds cross, every value becomes the upper one
    expression = "v"
    if high is not None:
        expression = f"(v > {literal(high)} ? {literal(high)} : v)"
    if low is not None:
        expression = f"(v < {literal(low)} ? {literal(low)} : {expression})"
    return expression


def _number(bound: Bound) -> float | None:
    value = bound.item() if isinstance(bound, Tensor) and bound.numel() == 1 else bound
    if value is not None and not isinstance(value, int | float):
        raise TypeError("a bound that is not a number")
    return value


def _gelu(arguments: Arguments) -> str:
    if arguments["approximate"] == "tanh":
        factor = literal(math.sqrt(2 / math.pi))
        return f"0.5f * v * (1.0f + tanhf({factor} * (v + 0.044715f * v * v * v)))"
    return f"0.5f * v * (1.0f + erff(v * {literal(math.sqrt(0.5))}))"


def _elu(alpha: float, scale: float = 1.0, input_scale: float = 1.0) -> str:
    negative = f"{literal(scale * alpha)} * expm1f(v * {literal(input_scale)})"
    return f"v > 0.0f ? {literal(scale)} * v : {negative}"


def _softplus(beta: float, threshold: float) -> str:
    smooth = f"log1pf(expf(v * {literal(beta)})) / {literal(beta)}"
    return f"v * {literal(beta)} > {literal(threshold)} ? v : {smooth}"


def _power(exponent: object) -> str:
    if not isinstance(exponent, int | float):
        raise TypeError("a power that is not a number")
    return "v * v" if exponent == 2 else f"powf(v, {literal(exponent)})"


# The name of an ATen operation -> its arguments by name -> the expression. Comparisons let a NaN through.
ACTIVATIONS: dict[str, Callable[[Arguments], str]] = {
    "relu": lambda a: "v < 0.0f ? 0.0f : v",
    "relu6": lambda a: _clamp(0.0, 6.0),
    "hardtanh": lambda a: _clamp(a["min_val"], a["max_val"]),
    "clamp": lambda a: _clamp(a["min"], a["max"]),
    "clamp_min": lambda a: _clamp(a["min"], None),
    "clamp_max": lambda a: _clamp(None, a["max"]),
    "leaky_relu": lambda a: f"v < 0.0f ? {literal(a['negative_slope'])} * v : v",
    "threshold": lambda a: f"v <= {literal(a['threshold'])} ? {literal(a['value'])} : v",
    "tanh": lambda a: "tanhf(v)",
    "sigmoid": lambda a: "1.0f / (1.0f + expf(-v))",
    "softplus": lambda a: _softplus(a["beta"], a["threshold"]),
    "gelu": _gelu,
    "silu": lambda a: "v / (1.0f + expf(-v))",
    "mish": lambda a: "v * tanhf(v > 20.0f ? v : log1pf(expf(v)))",
    "elu": lambda a: _elu(a["alpha"], a["scale"], a["input_scale"]),
    "celu": lambda a: _elu(a["alpha"], 1.0, 1.0 / a["alpha"]),
    "selu": lambda a: _elu(1.6732632423543772, 1.0507009873554805),
    "hardsigmoid": lambda a: "v < -3.0f ? 0.0f : v > 3.0f ? 1.0f : v / 6.0f + 0.5f",
    # in torch's order of operations, which turns minus infinity into NaN
    "hardswish": lambda a: "v * (v < -3.0f ? 0.0f : v > 3.0f ? 6.0f : v + 3.0f) / 6.0f",
    "log_sigmoid": lambda a: "(v < 0.0f ? v : 0.0f) - log1pf(expf(-fabsf(v)))",
    "abs": lambda a: "fabsf(v)",
    "neg": lambda a: "-v",
    "exp": lambda a: "expf(v)",
    "log": lambda a: "logf(v)",
    "sqrt": lambda a: "sqrtf(v)",
    "rsqrt": lambda a: "1.0f / sqrtf(v)",
    "square": lambda a: "v * v",
    "reciprocal": lambda a: "1.0f / v",
    "pow": lambda a: _power(a["exponent"]),
}
