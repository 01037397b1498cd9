"""Conversion of a plain model to a Bayesian one and back: `convert_` and `deterministic_`."""

import math
from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from vbdrop._torch_compat import ConvNd
from vbdrop.analysis.channel_groups import ChannelGroups, find_groups
from vbdrop.convert.attentions import close_attentions_, open_attentions_
from vbdrop.convert.fast_path import sync_fast_paths_
from vbdrop.convert.outside_reads import why_unused
from vbdrop.convert.pretrained import forget_warnings_, warn_when_saved_
from vbdrop.convert.report import ITSELF, Conversion
from vbdrop.convert.shared_gates import PROJECTION, PlainGraph, plain_graph, share_gates_
from vbdrop.convert.snapshot import Snapshot
from vbdrop.convert.survey import Survey, candidates, why_not_again
from vbdrop.layers import (
    LAYERS,
    GatedAttention,
    GatedNorm,
    Mode,
    NoisyLayer,
    OpenAttention,
    Rates,
    Units,
    Weights,
    add_imported_layers_,
)
from vbdrop.layers.companions import weight_names
from vbdrop.layers.computed_weight import GatedProduct, gated_product_class, is_still_product
from vbdrop.layers.lost_gates import unwatch_gates_, watch_gates_
from vbdrop.layers.unequal_recurrent import refit_
from vbdrop.objective import noisy_tensors
from vbdrop.objective.checks import some

IMAGE_CHANNELS = 4
"""A convolution with at most this many input channels is assumed to read the image itself."""


def convert_(model: nn.Module, *modes: Mode, example_inputs: Any = None) -> Conversion:  # noqa: ANN401 -- in any form
    """Make the layers of a model noisy, in place.

    Every module stays the same object, with the same name and the same ``weight`` and ``bias`` parameters; new
    parameters are added beside them (``log_sigma2``, ``log_alpha``, ``gate.weight``, ...). What cannot be converted is
    left alone and reported. If anything fails, the model is left unchanged.

    Args:
        model: Any `torch.nn.Module`, trained or not. For a transformer, pass at least a whole encoder layer, so that
            its fast path, which bypasses ``linear1`` in eval mode, can be disabled.
        modes: One or more of `Weights`, `Units` and `Rates`; `Units` combines with the others.
        example_inputs: Inputs that the model accepts (a tensor, a tuple of arguments or a dict of named ones). If they
            are given, a copy of the model is run once, and a layer is left alone if the model does not call it or also
            reads its weight directly: such a read would see neither noise nor mask.
            `Units` then follows the channels through the model: all layers that read the same channels, such as a
            residual stream or the heads of an attention, share one gate per channel or head, so that dead channels can
            really be removed; the report says how many can be. Without example inputs, each layer has its own gates.

    Returns:
        A report of what was converted, and what was left and why; print it.

    Raises:
        TypeError: If ``model`` is not a module, or a mode is none of these.
        ValueError: If there is nothing to convert, at all or for one of the modes.

    Example:
        >>> import vbdrop
        >>> model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
        >>> print(vbdrop.convert_(model, vbdrop.Weights()))
        converted 2, left 0
          0  Weights
          2  Weights
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    if not modes or not all(isinstance(mode, Weights | Units | Rates) for mode in modes):
        raise TypeError(f"`modes` must be one or more of vbdrop.Weights(), Units() and Rates(); got {_said(modes)}.")
    add_imported_layers_()
    report = Conversion()
    before = Snapshot(model)
    try:
        if example_inputs is not None and any(isinstance(mode, Units) for mode in modes):
            open_attentions_(model)
        unused = {} if example_inputs is None else why_unused(model, example_inputs)
        survey = Survey(model)
        plain = None
        if example_inputs is not None and any(isinstance(mode, Units) for mode in modes):
            plain = plain_graph(model, example_inputs)
        for mode in modes:
            _convert_one(model, mode, survey, unused, plain if isinstance(mode, Units) else None, report)
    except BaseException:
        before.restore_()
        raise
    close_attentions_(model)
    sync_fast_paths_(model)
    warn_when_saved_(model)
    watch_gates_(model)
    return report


def _said(modes: tuple[object, ...]) -> str:
    """What was passed as modes, without the values of tensors, and where tensors belong."""
    data = next((mode for mode in modes if isinstance(mode, Tensor | Mapping)), None)
    if data is None:
        return repr(modes)
    what = f"a tensor of shape {tuple(data.shape)}" if isinstance(data, Tensor) else f"a {type(data).__name__}"
    return f"{what}; inputs of the model are passed by name, example_inputs=..."


def _convert_one(
    model: nn.Module,
    mode: Mode,
    survey: Survey,
    unused: Mapping[str, str],
    plain: PlainGraph | None,
    report: Conversion,
) -> None:
    """Convert the modules that this mode applies to, and record the others."""
    kind = type(mode).__name__
    chosen, left = {}, {}
    modules = list(candidates(model))
    first = next((module for _, module in modules if isinstance(module, (nn.Embedding, *LAYERS))), None)
    for name, module in modules:
        reason = survey.why_left(module) or why_not_again(module, mode) or unused.get(name)
        inputs = outputs = False
        if reason is None:
            inputs = _chosen(mode, "filter_fn", name, module)
            outputs = isinstance(mode, Units) and mode.outputs is not None and _chosen(mode, "outputs", name, module)
            reason = "not chosen by filter_fn"
            if inputs and isinstance(mode, Units) and _sees_image(module, module is first):
                inputs, reason = False, "its input channels are those of the image"
        if inputs or outputs:
            chosen[name] = (module, inputs, outputs)
        else:
            left[name] = str(reason)
    groups = None
    if plain is not None and isinstance(mode, Units):
        layers = {name for name, (_, inputs, _) in chosen.items() if inputs}
        groups = find_groups(plain.traced, plain.model, layers | _attentions(model, mode), _norms(model, mode))
        inside = [name for name in chosen if not chosen[name][2]]
        reasons = {name: reason for name in inside if (reason := _why_ungated(groups, name, model))}
        if len(reasons) < len(chosen) or groups.norms or _gated_attentions(groups):
            left |= reasons
            chosen = {name: choice for name, choice in chosen.items() if name not in reasons}
        else:  # nothing could be removed: each layer gets its own gates
            report.notes.append(f"no channel group was found ({_reasons(reasons)}); each layer has its own gates")
            groups = None
    for module, *_ in chosen.values():
        _as_noisy_(module)
    if groups is not None and isinstance(mode, Units):
        share_gates_(model, mode, groups)
    for name, (module, inputs, outputs) in chosen.items():
        if groups is not None and isinstance(module, nn.RNNBase):
            continue  # its gates come from the groups
        own_inputs = inputs and (groups is None or name not in {*groups.readers, *groups.left})
        own_inputs = own_inputs and not _sees_data(module, module is first)
        cast(NoisyLayer, module).add_noise_(mode, inputs=own_inputs, outputs=outputs)
    others = [] if groups is None else [*groups.norms, *_gated_attentions(groups)]
    if not chosen and not others:
        raise ValueError(f"`model` has nothing to convert with {kind} ({_reasons(left)}).")
    report.add(kind, [*chosen, *others], {name: reason for name, reason in left.items() if name not in others}, groups)


def _norms(model: nn.Module, mode: Units) -> set[str]:
    """The modules without gates that may be normalisations over channels; a trial run shows which of them are."""
    leaves = {name: module for name, module in model.named_modules() if not module._modules}
    return {
        name
        for name, module in leaves.items()
        if "Norm" in type(module).__name__ and _chosen(mode, "filter_fn", name, module)
    }


def _attentions(model: nn.Module, mode: Units) -> set[str]:
    """The torch attentions whose inputs can have gates and have none yet."""
    found = {name: module for name, module in model.named_modules() if type(module) is OpenAttention}
    joined = {name: module for name, module in found.items() if getattr(module, PROJECTION) is not None}
    return {name for name, module in joined.items() if _chosen(mode, "filter_fn", name, module)}


def _gated_attentions(groups: ChannelGroups) -> list[str]:
    """The attentions that read a group directly."""
    readers = [name.rpartition(".") for name in groups.readers]
    return [path for path, _, matrix in readers if matrix == PROJECTION]


def _why_ungated(groups: ChannelGroups, name: str, model: nn.Module) -> str | None:
    """Why no channel group has gates for a layer; None if one does, or if the layer may have its own gates."""
    module = model.get_submodule(name)
    if not isinstance(module, nn.RNNBase):
        return groups.left.get(name)
    matrices = [f"{name}.{matrix}".lstrip(".") for matrix in weight_names(module)]
    if any(matrix in groups.readers for matrix in matrices):
        return None
    return next(
        (groups.left[matrix] for matrix in matrices if matrix in groups.left), "none of its units can be removed"
    )


def _reasons(left: dict[str, str], most: int = 5) -> str:
    """The reasons for the first few modules that were left."""
    told = [f"{name or ITSELF}: {reason}" for name, reason in left.items()]
    rest = [f"and {len(told) - most} more"] if len(told) > most else []
    return "; ".join(told[:most] + rest) or "it has no parameters"


def _chosen(mode: Mode, which: str, name: str, module: nn.Module) -> bool:
    """The answer of the user's filter for a module; anything but a bool is an error."""
    choose = getattr(mode, which)
    if choose is None:
        return True
    answer = choose(module, name)
    if not isinstance(answer, bool):
        raise TypeError(f"`{which}` of {type(mode).__name__} must return a bool; for {name!r} it gave {answer!r}.")
    return answer


def _sees_image(module: nn.Module, is_first: bool) -> bool:
    return isinstance(module, ConvNd) and (is_first or module.in_channels <= IMAGE_CHANNELS)


def _sees_data(module: nn.Module, is_first: bool) -> bool:
    """Whether a recurrent layer reads the model's input sequences; its hidden units always have gates."""
    return isinstance(module, nn.RNNBase) and is_first


def _as_noisy_(module: nn.Module) -> NoisyLayer:
    """The module itself, now with the class of its noisy counterpart."""
    if not isinstance(module, NoisyLayer):
        kind = type(module)
        _set_class_(module, LAYERS[kind] if kind in LAYERS else gated_product_class(kind))
    return cast(NoisyLayer, module)


def _set_class_(module: nn.Module, kind: type[nn.Module]) -> None:
    """Change the class of a module and nothing else: its parameters, hooks and identity stay."""
    module.__class__ = kind


def deterministic_(model: nn.Module, threshold: float | None = None) -> nn.Module:
    """Turn a converted model back into plain layers of the same shape, in place.

    Dead weights become exact zeros and gates are folded into the weights, so that the outputs are those of the
    converted model in eval mode. Use `vbdrop.compress` for a smaller model.

    Args:
        model: A converted model; a plain one is returned unchanged.
        threshold: The ``log_alpha`` at or above which weights and units are dead; None uses each one's own.

    Returns:
        The same model.

    Raises:
        TypeError: If ``model`` is not a module, or ``threshold`` is not a number.
        ValueError: If a weight or rate is NaN, or a weight was parametrized, pruned or tied after the conversion; the
            model is left unchanged.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(8, 4)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> type(vbdrop.deterministic_(model))
        <class 'torch.nn.modules.linear.Linear'>
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"`model` must be a torch.nn.Module; got {type(model).__name__}.")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise TypeError(f"`threshold` must be a number or None; got {threshold!r}.")
    if threshold is not None and math.isnan(threshold):
        raise ValueError("`threshold` must be a number or None; got nan.")
    if diverged := [name for name, entry in noisy_tensors(model) if _has_nan(entry.mean) or _has_nan(entry.rate)]:
        raise ValueError(f"`model` has weights or rates that are not numbers (NaN), in {some(diverged)}.")
    survey = Survey(model)
    noisy_layers = [(name, module) for name, module in model.named_modules() if isinstance(module, NoisyLayer)]
    for name, module in noisy_layers:
        reason = survey.why_left(module)
        if isinstance(module, GatedProduct) and not is_still_product(module):
            reason = "it no longer computes a product with its inputs"
        if reason:
            raise ValueError(f"`model` cannot become plain: {name or ITSELF} was changed, {reason}.")
    for gated in [module for module in model.modules() if isinstance(module, GatedNorm | GatedAttention)]:
        gated.make_plain_(threshold)
    for _, module in noisy_layers:
        module.make_plain_(threshold)
        forget_noise_(module)
    sync_fast_paths_(model)
    forget_warnings_(model)
    unwatch_gates_(model)
    return model


def _has_nan(tensor: Tensor) -> bool:
    return not tensor.is_meta and bool(tensor.isnan().any())


def forget_noise_(module: NoisyLayer) -> None:
    """Turn a noisy layer back into the plain one without folding masks or gates into its weight."""
    plain = {noisy: nn_type for nn_type, noisy in LAYERS.items()}
    module.strip_()
    if type(module) in plain:
        _set_class_(module, plain[type(module)])
    if isinstance(module, nn.RNNBase):
        refit_(module)
