"""`compress`: from a trained model to a plain, smaller one with the same outputs."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn.utils import prune
from torch.utils import _pytree as pytree

from vbdrop.analysis.graph import Traced, TraceError, trace
from vbdrop.compression.agreement import outputs_of
from vbdrop.compression.files.model_file import built_with, save
from vbdrop.compression.masking import masked_copy
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.removal import Removal, remove
from vbdrop.compression.size_limits import SizeLimits, threshold_for
from vbdrop.compression.summary import Summary, summarise
from vbdrop.convert.recalibration import Batches, without_noise


@dataclass(frozen=True)
class Compressed:
    """What `vbdrop.compress` gives.

    Attributes:
        model: The small model: plain `torch.nn` modules, in eval mode, with the outputs of the masked one. Where images
            are pooled it has the memory format `torch.channels_last`, which makes that faster on a CPU; inputs may have
            either format, and ``small.model.to(memory_format=torch.contiguous_format)`` gives the usual one back.
        plan: What was removed, as data; see `vbdrop.compression.rewriting.apply_plan`.
        left: What keeps its channels although some of them may not matter, and why.
        threshold: The ``log_alpha`` from which on weights and units were dead; None for each one's own.
    """

    model: nn.Module
    plan: Plan
    left: dict[str, str]
    threshold: float | None
    _inputs: inspect.BoundArguments
    _summary: Summary
    _arguments: dict[str, Any] | None

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        """The example inputs, by position, as `vbdrop.export` needs them.

        Raises:
            ValueError: If the forward takes some of them by name only.
        """
        defaults = {name: parameter.default for name, parameter in self._inputs.signature.parameters.items()}
        for name, value in self._inputs.kwargs.items():
            if name not in defaults or value is not defaults[name]:
                raise ValueError(
                    f"`example_inputs` by position cannot hold `{name}`, which `forward` takes by name only; a model "
                    "that is exported or measured gets all of its inputs by position."
                )
        return self._inputs.args

    def summary(self) -> Summary:
        """The counts before and after, a layer a row; print it."""
        return self._summary

    def save(self, path: str | Path, dtype: Literal["float32", "float16"] | None = None) -> int:
        """Write the small model as one safetensors file, for `vbdrop.load`.

        Args:
            path: Where to write; what is there is replaced at the very end.
            dtype: What floating-point numbers are stored as; None for exactly as they are.

        Returns:
            The bytes of the file.
        """
        return save(path, self.model, self.plan, dtype=dtype, arguments=self._arguments)


def compress(
    model: nn.Module,
    example_inputs: Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any],
    threshold: float | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    max_bytes: str | int | None = None,
    max_macs: int | None = None,
    max_weights: int | None = None,
    rewrite: bool = True,
    recalibrate: Tensor | Batches | Literal[False] | None = None,
) -> Compressed:
    """Take out of a trained model what it does not need.

    The dead weights of a converted model become zeros (a plain model is taken with the zeros that it has). Channels
    that are constant or that nothing reads are then removed, exactly: constants go into the biases behind them. The
    small model keeps the class, if its forward still holds, and the names of all modules; otherwise it is a
    `torch.fx.GraphModule` with the same modules under the same names. It was compared with the masked model on the
    example inputs, and on noise in batches of several sizes.

    Args:
        model: A trained model, converted or plain, compiled or not; it is not changed.
        example_inputs: Inputs that the model accepts: a tensor, a tuple of arguments, or a dict of named ones. The
            size of their first axis, the batch, does not matter later; that of the others (an image's, a sequence's)
            does if the forward is replaced. It is not if an input among them is no tensor, such as a flag.
        threshold: The ``log_alpha`` from which on weights and units are dead; None for each one's own.
        example_kwargs: Named inputs besides.
        max_bytes: The largest size of the stored model, such as ``"20 kB"`` or a number of bytes; the threshold is
            lowered until the model meets it. See `vbdrop.compression.summary.stored_bytes` for what is counted.
        max_macs: The same for multiply-adds per example.
        max_weights: The same for weights that are not zero.
        rewrite: Whether the forward may be replaced by a graph. Without, only what leaves it valid is removed, as a
            model needs that is trained further.
        recalibrate: Training inputs with which the BatchNorm statistics are computed again, without noise, as by
            `vbdrop.recalibrate_`: a tensor, or an iterable of batches. None to take them as they are, with a warning if
            they hold noise; False to take them without a warning.

    Returns:
        The small model, its plan and summary, and what was left.

    Raises:
        ValueError: If the model does not accept the inputs, or no threshold meets the limits.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
        >>> with torch.no_grad():
        ...     _ = model[0].weight[:4].zero_()
        >>> compress(model, torch.zeros(1, 8)).model
        Sequential(
          (0): Linear(in_features=8, out_features=2, bias=True)
          (1): ReLU()
          (2): Linear(in_features=2, out_features=2, bias=True)
        )
    """
    model = without_noise(model, recalibrate)
    args, kwargs = _arguments(example_inputs, example_kwargs)
    wanted = SizeLimits.of(max_bytes, max_macs, max_weights)
    _check_unpruned(model)
    plain = masked_copy(model, threshold)
    _check_inputs(plain, args, kwargs)
    traced, untraceable = _try_trace(plain, args, kwargs)
    if wanted is not None:
        threshold = threshold_for(wanted, model, threshold, traced, rewrite=rewrite)
        plain = masked_copy(model, threshold)
    if traced is None:
        small, plan, left = Removal(plain, Plan(), {"model": untraceable})
    else:
        small, plan, left = remove(plain, traced, args, kwargs, rewrite=rewrite)
    summary = summarise(plain, small.state_dict(), plan, left)
    inputs = inspect.signature(model.forward).bind(*args, **kwargs)
    return Compressed(small, plan, left, threshold, inputs, summary, built_with(model))


def _arguments(inputs: Any, named: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:  # noqa: ANN401
    """The example inputs as positional and named arguments."""
    if named is not None and not isinstance(named, Mapping):
        raise TypeError(f"`example_kwargs` must be a dict of inputs by name; got {type(named).__name__}.")
    if isinstance(inputs, Mapping):
        return (), {**inputs, **(named or {})}
    if isinstance(inputs, tuple | list):
        return tuple(inputs), dict(named or {})
    if isinstance(inputs, Tensor):
        return (inputs,), dict(named or {})
    raise TypeError(f"`example_inputs` must be a tensor, a tuple of arguments or a dict; got {type(inputs).__name__}.")


def _try_trace(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced | None, str]:
    """The graph of a model, or None and what stopped it."""
    try:
        return trace(model, args, kwargs), ""
    except TraceError as error:
        return None, f"{error}; its weights are masked and all shapes stay"


def _check_unpruned(model: nn.Module) -> None:
    """Refuse what torch's own pruning has not made permanent: such a weight is no parameter, and cannot be copied."""
    for name, module in model.named_modules():
        if any(isinstance(hook, prune.BasePruningMethod) for hook in module._forward_pre_hooks.values()):
            raise ValueError(
                f"`model` must have its pruning made permanent: torch.nn.utils.prune is active on {name!r}. Call "
                "torch.nn.utils.prune.remove(module, name) for each pruned parameter first."
            )


def _check_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the model once, so that inputs that it does not accept are named as what they are."""
    try:
        outputs_of(model, args, kwargs)
    except Exception as error:
        leaves = pytree.tree_leaves((args, kwargs))
        shapes = [f"{leaf.dtype} {list(leaf.shape)}" for leaf in leaves if isinstance(leaf, Tensor)]
        raise ValueError(
            f"`example_inputs` must be inputs that the model accepts; with {', '.join(shapes) or 'no tensors'} it "
            f"raised {type(error).__name__}: {error}"
        ) from error
