"""Rules for operations outside PyTorch: each treats channels as a given PyTorch operation does."""

import torch
from torch import nn

from vbdrop._torch_compat import OpOverload, schema_of
from vbdrop.analysis.layer_shapes import SHAPES, Shape
from vbdrop.analysis.rules.table import RULES, Rule

REGISTERED: dict[str, Rule] = {}
"""The full name of an operation, such as ``"mylib::fast_linear"`` -> its rule."""


def register_rule(
    operation: str,
    like: str,
    *,
    layer: type[nn.Module] | None = None,
    inputs: str | None = None,
    outputs: str | None = None,
) -> None:
    """Let `vbdrop.compress` remove channels around a custom operation, such as a kernel that you wrote.

    Without a rule, `compress` keeps all input and output channels of an operation from outside PyTorch. A layer whose
    forward consists of PyTorch operations needs no rule.

    Args:
        operation: The operation's full name in `torch.library`, such as ``"mylib::fast_linear"``.
        like: The PyTorch operation that computes the same, such as ``"linear"``, ``"conv2d"`` or ``"relu"``. Yours must
            take the same arguments under the same names, and may take more.
        layer: The layer whose forward calls the operation, if it stores its numbers of units.
        inputs: The layer's attribute with the number of inputs, if it has one.
        outputs: The layer's attribute with the number of outputs.

    Raises:
        ValueError: If the operation does not exist or lacks an argument, or if ``like`` has no rule.

    Example:
        >>> @torch.library.custom_op("example::fast_relu", mutates_args=())
        ... def fast_relu(self: torch.Tensor) -> torch.Tensor:
        ...     return self.clamp_min(0)
        >>> register_rule("example::fast_relu", like="relu")
    """
    rule = RULES.get(like)
    if rule is None:
        raise ValueError(f"`like` must be a PyTorch operation with a rule: {', '.join(sorted(RULES))}; got {like!r}.")
    namespace, _, name = operation.partition("::")
    own = _arguments(namespace, name)
    if own is None:
        raise ValueError(f"`operation` must name an operation, such as 'mylib::fast_linear'; got {operation!r}.")
    missing = [argument for argument in _arguments("aten", like) or () if argument not in own]
    if missing:
        raise ValueError(f"`operation` must take the arguments of {like!r}; {operation!r} has no {', '.join(missing)}.")
    if (layer is None) != (outputs is None) or (layer is None and inputs is not None):
        raise ValueError(
            f"`layer` and `outputs` must be given together, and `inputs` only with them; "
            f"got {layer!r}, {outputs!r} and {inputs!r}."
        )
    REGISTERED[operation] = rule
    if layer is not None and outputs is not None:
        SHAPES[layer] = Shape(inputs, outputs)


def rule_of(operation: OpOverload) -> Rule | None:
    """The rule of an operation, built in or registered; None if there is no rule.

    Example:
        >>> rule_of(torch.ops.aten.linear.default) is RULES["linear"]
        True
    """
    name = operation.overloadpacket.__name__
    return RULES.get(name) if operation.namespace == "aten" else REGISTERED.get(f"{operation.namespace}::{name}")


def _arguments(namespace: str, name: str) -> list[str] | None:
    """The names of an operation's arguments; None if there is no such operation."""
    found = getattr(getattr(torch.ops, namespace), name, None) if namespace and name else None
    overload = None if found is None else getattr(found, "default", None) or getattr(found, found.overloads()[0])
    return None if overload is None else [argument.name for argument in schema_of(overload).arguments]
