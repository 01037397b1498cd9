"""`compress`: turn a trained model into a smaller plain one with the same outputs."""

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from vbdrop._torch_compat import is_sharded, pytree, unwrapped
from vbdrop.analysis.graph import Traced, TraceError, trace
from vbdrop.analysis.size_guards import other_sizes
from vbdrop.compression.agreement import checks, depends_on_inputs, disagreement, outputs_of
from vbdrop.compression.evidence import LIMIT, EvidenceLoss, evidence_lost
from vbdrop.compression.files.model_file import Dtype, built_with, save
from vbdrop.compression.masking import forget_unused_noise_, judge_of, masked_copy
from vbdrop.compression.noise_probes import disagreement_under_noise
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.planning.replaced_modules import note_replaced, with_own_classes
from vbdrop.compression.removal import REWRITE_GAIN, Removal, remove
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.compression.size_limits import SizeLimits, threshold_for
from vbdrop.compression.summary import Summary, summarise
from vbdrop.convert.example_inputs import as_arguments, copied
from vbdrop.convert.recalibration import Batches, without_noise
from vbdrop.layers.computed_weight import MARK
from vbdrop.layers.lost_gates import check_gates
from vbdrop.objective import ELBO, noisy_tensors
from vbdrop.objective.checks import some

Inputs = Tensor | tuple[Any, ...] | list[Any] | Mapping[str, Any]
"""Example inputs: a tensor, arguments by position, or by name."""


@dataclass(frozen=True)
class Compressed:
    """The result of `vbdrop.compress`.

    Attributes:
        model: The small model: plain `torch.nn` modules, in eval mode, with the outputs and the memory format of the
            given model.
        plan: What was removed, as data; see `vbdrop.compression.rewriting.apply_plan`.
        left: What is dead but kept, what keeps channels although some of them may have no effect, and why.
        threshold: The ``log_alpha`` at or above which weights and units were dead; None if each one's own was used.
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
            ValueError: If the forward takes some of them by name only, or after arguments that the example skips.
        """
        parameters = self._inputs.signature.parameters
        for name, value in self._inputs.kwargs.items():
            parameter = parameters.get(name)
            if parameter is None or value is not parameter.default:
                after_others = parameter is not None and parameter.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
                reason = "comes after one that the example skips" if after_others else "`forward` takes by name only"
                raise ValueError(
                    f"`example_inputs` by position cannot hold `{name}`, which {reason}; a model that is exported or "
                    f"measured gets all of its inputs by position. Compress without `{name}` if the outputs that you "
                    "need do not depend on it."
                )
        return self._inputs.args

    def __repr__(self) -> str:
        return str(self._summary)

    def summary(self) -> Summary:
        """The counts before and after, one row per layer; print it."""
        return self._summary

    def save(self, path: str | Path, dtype: Dtype | None = None) -> int:
        """Write the small model as one safetensors file, for `vbdrop.load`.

        Args:
            path: Where to write, with the ending ``.safetensors`` or none; an existing file is replaced only once the
                new one is complete.
            dtype: The dtype in which floating-point numbers are stored, float32 or float16, by name or as a
                `torch.dtype`; None keeps their own.

        Returns:
            The size of the file in bytes.
        """
        return save(path, self.model, self.plan, dtype=dtype, arguments=self._arguments)


def compress(
    model: nn.Module,
    example_inputs: Inputs,
    threshold: float | None = None,
    *,
    example_kwargs: Mapping[str, Any] | None = None,
    max_bytes: str | int | None = None,
    max_macs: int | None = None,
    max_weights: int | None = None,
    rewrite: bool = True,
    rewrite_gain: float = REWRITE_GAIN,
    round_to: int = 1,
    recalibrate: Tensor | Batches | Literal[False] | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    elbo: ELBO | None = None,
) -> Compressed:
    """Remove from a trained model what it does not need.

    The dead weights of a converted model become zeros (a plain model is used with the zeros that it has). Channels
    that are constant or that nothing reads are then removed exactly: constants are folded into the biases that follow.
    If the forward is still valid, the small model keeps its class and the names of all modules; otherwise it is a
    `torch.fx.GraphModule` with the same modules under the same names. It is compared with the given model, which runs
    its own forward in eval mode at the threshold in use: on the example inputs, on noise in batches of several sizes,
    and on inputs of other sizes.

    Args:
        model: A trained model, converted or plain, compiled or not; it is not changed.
        example_inputs: Inputs that the model accepts: a tensor, a tuple of arguments, or a dict of named ones. The
            size of their first axis, the batch, does not matter later. The other sizes (of an image or a sequence) do
            matter if the forward is replaced by one that is valid for these sizes only: it then refuses others. The
            forward is never replaced if any input is not a tensor, such as a flag.
        threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.
        example_kwargs: Additional inputs by name.
        max_bytes: The largest size of the stored model, such as ``"20 kB"`` or a number of bytes; the threshold is
            lowered until the model meets it. See `vbdrop.compression.summary.stored_bytes` for what is counted.
        max_macs: The same for multiply-adds per example.
        max_weights: The same for nonzero weights.
        rewrite_gain: The forward is replaced only if this removes at least this share of the weights that would remain
            with the original forward, which keeps its arguments and its methods. With a limit such as ``max_bytes``,
            any gain counts.
        rewrite: Whether the forward may be replaced by a graph. If not, only what leaves the forward valid is removed,
            as required if the model is to be trained further.
        round_to: Layers that lose units keep enough of the dead ones, as zeros, for their widths to be multiples of
            this: many runtimes are faster for multiples of 8 or 16. 1, the default, removes all of them.
        recalibrate: Training inputs with which the BatchNorm statistics are recomputed without noise, as by
            `vbdrop.recalibrate_`: a tensor, or an iterable of batches. None keeps the existing statistics, with a
            warning if they may contain noise; False keeps them without a warning.
        evaluate: Takes a model in eval mode and returns a figure, such as its validation error; it is called before and
            after, and ``summary()`` shows both figures.
        elbo: The objective that the model was trained with; ``summary()`` then shows what the cut costs per example.

    Returns:
        The small model, its plan and summary, and what was left.

    Raises:
        ValueError: If the model does not accept the inputs, no threshold meets the limits, or something other than the
            layers' own forwards reads weights of which some are dead.

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
    if evaluate is not None and not callable(evaluate):
        raise TypeError(f"`evaluate` must be a function of a model; got {type(evaluate).__name__}.")
    if isinstance(rewrite_gain, bool) or not isinstance(rewrite_gain, int | float) or not 0 <= rewrite_gain < 1:
        raise ValueError(
            f"`rewrite_gain` must be a share of the weights, at least 0 and below 1; got {rewrite_gain!r}."
        )
    if elbo is not None and not isinstance(elbo, ELBO):
        raise TypeError(f"`elbo` must be the vbdrop.ELBO used in training, or None; got {type(elbo).__name__}.")
    check_round_to(round_to)
    wanted = SizeLimits.of(max_bytes, max_macs, max_weights)
    gain = rewrite_gain if wanted is None else 0.0
    given = without_noise(model, recalibrate)
    compression = Compression(
        given, example_inputs, example_kwargs, rewrite=rewrite, rewrite_gain=gain, round_to=round_to
    )
    if wanted is not None:
        options: dict[str, Any] = {"rewrite": rewrite, "round_to": round_to, "own_classes": compression.own_classes}
        threshold = threshold_for(wanted, compression.given, threshold, compression.traced, **options)
    small = compression.at(threshold)
    evidence = evidence_lost(compression.given, threshold, elbo)
    figures = None
    if evaluate is not None:
        with torch.no_grad():
            figures = figure_of(evaluate, copied(compression.given)), figure_of(evaluate, small.model)
    if warning := compression.why_ruined(small, evidence, figures):
        warnings.warn(warning, stacklevel=2)
    return replace(small, _summary=replace(small.summary(), evidence=evidence, figures=figures))


def figure_of(evaluate: Callable[[nn.Module], float], model: nn.Module) -> float:
    """The figure of a model.

    Raises:
        TypeError: If it is not a number.
    """
    found: object = evaluate(model)
    try:
        return float(found)  # type: ignore[arg-type]  # numbers of numpy and tensors of one element, too
    except (TypeError, ValueError, RuntimeError) as error:
        got = "None" if found is None else type(found).__name__
        raise TypeError(f"`evaluate` must return a number; got {got}.") from error


def check_round_to(round_to: object) -> int:
    """Return the number if the widths of layers can be rounded up to its multiples.

    Raises:
        ValueError: If it is not a whole number above 0.
    """
    if isinstance(round_to, bool) or not isinstance(round_to, int) or round_to < 1:
        raise ValueError(f"`round_to` must be a number of units, an int >= 1; got {round_to!r}.")
    return round_to


class Compression:
    """A model that is ready to be compressed at one or several thresholds.

    Attributes:
        given: A copy of the model, in eval mode, in which layers whose masks the forward bypasses are plain.
        traced: Its graph, or None if it could not be traced.
        own_classes: The layers that keep the class that computes their weight, since the model needs it.

    Args:
        model: A trained model, converted or plain, compiled or not; it is not changed.
        example_inputs: Inputs that the model accepts.
        example_kwargs: Additional inputs by name.
        rewrite: Whether the forward may be replaced by a graph.
        rewrite_gain: The additional share of the weights that this must remove.
        round_to: The widths of layers that lose units are multiples of this.
    """

    def __init__(
        self,
        model: nn.Module,
        example_inputs: Inputs,
        example_kwargs: Mapping[str, Any] | None = None,
        *,
        rewrite: bool = True,
        rewrite_gain: float = 0.0,
        round_to: int = 1,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
        model = unwrapped(model)
        self.args, self.kwargs = as_arguments(example_inputs, example_kwargs)
        _check_whole(model)
        check_gates(model)
        self.rewrite = rewrite
        self.rewrite_gain, self.round_to = rewrite_gain, round_to
        self.built_with = built_with(model)
        self.given = copied(model).eval()
        _check_inputs(self.given, self.args, self.kwargs)
        self._plain, self._two_ways = forget_unused_noise_(self.given, self.args, self.kwargs)
        self.own_classes = set[str]()
        plain = own = masked_copy(self.given, None)
        if any(MARK in module.__dict__ for module in plain.modules()):
            every = {name for name, _ in self.given.named_modules()}
            own = masked_copy(self.given, None, every)
            if disagreement(self.given, plain, self.args, self.kwargs) is not None:
                self.own_classes, plain = every, own
        self.traced, self._untraceable = _try_trace(plain, self.args, self.kwargs)
        self._sizes = None if self.traced is None else other_sizes(own, self.args, self.kwargs)

    def at(self, threshold: float | None) -> Compressed:
        """The small model at a threshold.

        Raises:
            ValueError: If the outputs of the masked model differ from those of the given one.
        """
        judge, plain = judge_of(self.given, threshold), masked_copy(self.given, threshold, self.own_classes)
        if self._two_ways:
            self._refuse_if(disagreement_under_noise(judge, plain, self.args, self.kwargs), judge)
        if self.traced is None:
            removal = Removal(plain, Plan(), {"model": self._untraceable})
        else:
            options: dict[str, Any] = {"rewrite": self.rewrite, "rewrite_gain": self.rewrite_gain}
            options |= {"round_to": self.round_to, "judge": judge, "sizes": self._sizes}
            removal = remove(plain, self.traced, self.args, self.kwargs, **options)
        small, plan, left = removal
        note_replaced(plan, small)
        small, plan, plain = self._with_own_classes(threshold, small, plan, plain)
        if "model" in left:
            self._check_masked(judge, plain)
        reason = "its weight is read outside its own forward, so its rates have no effect and nothing was removed"
        left = dict.fromkeys(sorted(self._plain), reason) | left
        summary = summarise(plain, small.state_dict(), plan, left)
        inputs = inspect.signature(self.given.forward).bind(*self.args, **self.kwargs)
        return Compressed(small, plan, left, threshold, inputs, summary, self.built_with)

    def _with_own_classes(
        self, threshold: float | None, small: nn.Module, plan: Plan, plain: nn.Module
    ) -> tuple[nn.Module, Plan, nn.Module]:
        """The small model, its plan and the masked model, with the original class for layers that are not cut."""
        less, own = with_own_classes(plan, self.given)
        if not own:
            return small, plan, plain
        masked = masked_copy(self.given, threshold, own | self.own_classes)
        again = apply_plan_(less, copied(masked))
        agrees = disagreement(small, again, self.args, self.kwargs) is None
        return (again, less, masked) if agrees else (small, plan, plain)

    def why_ruined(
        self, small: Compressed, evidence: EvidenceLoss | None, figures: tuple[float, float] | None
    ) -> str | None:
        """A warning about a cut that may ruin the model, and what to do instead; None if there is no reason for one.

        Args:
            small: The result of the cut.
            evidence: The evidence that the cut loses.
            figures: The figures measured before and after, if any.
        """
        threshold, layers = small.threshold, small.summary().layers
        dead = [name for name, entry in noisy_tensors(self.given) if bool(entry.dead(threshold).all())]
        weights = masked_copy(self.given, threshold, self.own_classes).named_parameters()
        dead += [name for name, weight in weights if weight.dim() > 1 and not bool(weight.any())]
        if not any(layer.after.nonzeros for layer in layers):  # no live weight affects the outputs
            dead += [layer.name for layer in layers]
        dead = list(dict.fromkeys(name.removesuffix(".weight") for name in dead))
        judge = judge_of(self.given, threshold)
        if dead and not depends_on_inputs(judge, self.args, self.kwargs):
            return (
                f"everything in {some(dead)} is dead, and the outputs no longer depend on the inputs. Train with "
                "a smaller kl_weight or a longer warm-up, or compress with a higher threshold or a larger limit."
            )
        if evidence is None or not evidence.is_large:
            return None
        measured = "" if figures is None else f" `evaluate` gave {figures[0]:.4g} before and {figures[1]:.4g} after."
        place = "its thresholds" if threshold is None else f"log alpha {threshold:.2f}"
        return (
            f"the cut at {place} loses {evidence}, where {LIMIT} is the limit: it may ruin the model.{measured} Train "
            "with a larger kl_weight until the model is nearly as small as it has to be, or allow a larger model; "
            "pass `evaluate=` to measure the figure that matters before and after."
        )

    def _check_masked(self, judge: nn.Module, plain: nn.Module) -> None:
        """Refuse a model whose masked version gives other outputs."""
        wanted = checks(judge, self.args, self.kwargs)
        self._refuse_if(next((said for check in wanted if (said := check.disagreement(plain))), None), judge)

    def _refuse_if(self, said: str | None, judge: nn.Module) -> None:
        """Refuse a model whose masked version disagrees with it, unless the model draws random numbers."""
        if said is None or disagreement(judge, judge, self.args, self.kwargs) is not None:
            return
        where = f"the weights of {some(sorted(self._two_ways))} are" if self._two_ways else "a weight may be"
        raise ValueError(
            f"`model` cannot be made plain, since then {said}. Some of its weights are dead, and {where} also read "
            "outside the layer's own forward, where nothing masks them. Convert the model with vbdrop.convert_(model, "
            "..., example_inputs=...), which leaves such layers alone, and train it again."
        )


def _try_trace(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Traced | None, str]:
    """The graph of a model, or None and the reason why it cannot be traced."""
    try:
        return trace(model, args, kwargs), ""
    except TraceError as error:
        return None, f"{error}; its weights are masked and all shapes stay"


def _check_whole(model: nn.Module) -> None:
    """Refuse models that cannot be copied because of sharded parameters or active torch pruning."""
    if is_sharded(model):
        raise ValueError(
            "`model` must have whole parameters; those of this one are distributed over processes. Call "
            "vbdrop.integrations.sharded.compress_sharded(model, build, example_inputs) on all ranks, which gathers "
            "them."
        )
    for name, module in model.named_modules():
        if any(isinstance(hook, prune.BasePruningMethod) for hook in module._forward_pre_hooks.values()):
            raise ValueError(
                f"`model` must have its pruning made permanent: torch.nn.utils.prune is active on {name!r}. Call "
                "torch.nn.utils.prune.remove(module, name) for each pruned parameter first."
            )


def _check_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run the model once, so that unacceptable inputs raise a clear error."""
    try:
        outputs_of(model, args, kwargs)
    except Exception as error:
        leaves = pytree.tree_leaves((args, kwargs))
        shapes = [f"{leaf.dtype} {list(leaf.shape)}" for leaf in leaves if isinstance(leaf, Tensor)]
        raise ValueError(
            f"`example_inputs` must be inputs that the model accepts; with {', '.join(shapes) or 'no tensors'} it "
            f"raised {type(error).__name__}: {error}"
        ) from error
