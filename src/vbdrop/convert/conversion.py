"""From a plain model to a Bayesian one, and back: `convert_` and `deterministic_`."""

from typing import cast

from torch import nn
from torch.nn.modules.conv import _ConvNd

from vbdrop.convert.fast_path import sync_fast_paths_
from vbdrop.convert.report import Conversion
from vbdrop.convert.survey import candidates, shared_parameters, why_left, why_not_again
from vbdrop.layers import LAYERS, Mode, NoisyLayer, Rates, Units, Weights

IMAGE_CHANNELS = 4
"""A convolution with at most so many input channels is taken to see the image itself."""


def convert_(model: nn.Module, *modes: Mode) -> Conversion:
    """Make the layers of a model noisy, in place.

    Every module stays the object that it was, under its name, with the same ``weight`` and ``bias`` parameters; new
    parameters come beside them (``log_sigma2``, ``log_alpha``, ``gate.weight``, ...). What cannot be converted is left
    alone and reported. If anything fails, the model is as it was before.

    Args:
        model: Any `torch.nn.Module`, trained or not.
        modes: One or more of `Weights`, `Units` and `Rates`; `Units` combines with the others.

    Returns:
        What was converted, and what was left with the reason; print it.

    Raises:
        TypeError: If ``model`` or a mode is something else.
        ValueError: If there is nothing to convert.

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
        raise TypeError(f"`modes` must be one or more of vbdrop.Weights(), Units() and Rates(); got {modes!r}.")
    classes = {id(module): type(module) for module in model.modules()}
    before = {id(module): set(_added(module)) for module in model.modules()}
    report = Conversion()
    try:
        for mode in modes:
            _convert_one(model, mode, report)
        if not report.converted:
            reasons = "; ".join(f"{name or 'the model'}: {why}" for name, why in report.left.items())
            raise ValueError(f"`model` has nothing to convert ({reasons or 'it has no parameters'}).")
    except BaseException:
        _undo(model, classes, before)
        raise
    sync_fast_paths_(model)
    return report


def _convert_one(model: nn.Module, mode: Mode, report: Conversion) -> None:
    """Convert what this mode can take, and write down what it cannot."""
    shared = shared_parameters(model)
    modules = list(candidates(model))
    first = next((m for _, m in modules if why_left(m, shared) is None), None)
    for name, module in modules:
        reason = why_left(module, shared) or why_not_again(module, mode)
        inputs = outputs = False
        if reason is None:
            inputs = _chosen(mode, "filter_fn", name, module)
            if isinstance(mode, Units):
                outputs = mode.outputs is not None and _chosen(mode, "outputs", name, module)
                if inputs and _sees_image(module, module is first):
                    inputs, reason = False, "its input channels are the image's own"
            elif not inputs:
                reason = "not chosen by filter_fn"
        if inputs or outputs:
            _as_noisy_(module).add_noise_(mode, inputs=inputs, outputs=outputs)
            what = type(mode).__name__
            report.converted[name] = f"{report.converted[name]}, {what}" if name in report.converted else what
            report.left.pop(name, None)
        elif name not in report.converted:
            report.left[name] = reason or "not chosen by filter_fn"


def _chosen(mode: Mode, which: str, name: str, module: nn.Module) -> bool:
    """What the user's filter says of a module; anything but a bool is an error."""
    choose = getattr(mode, which)
    if choose is None:
        return True
    answer = choose(name, module)
    if not isinstance(answer, bool):
        raise TypeError(f"`{which}` of {type(mode).__name__} must return a bool; for {name!r} it gave {answer!r}.")
    return answer


def _sees_image(module: nn.Module, is_first: bool) -> bool:
    return isinstance(module, _ConvNd) and (is_first or module.in_channels <= IMAGE_CHANNELS)


def _as_noisy_(module: nn.Module) -> NoisyLayer:
    """The module itself, with the class of its noisy counterpart."""
    if not isinstance(module, NoisyLayer):
        _set_class_(module, LAYERS[type(module)])
    return cast(NoisyLayer, module)


def _set_class_(module: nn.Module, kind: type[nn.Module]) -> None:
    """Change what a module is, and nothing else of it: its parameters, hooks and identity stay."""
    module.__class__ = kind


def _added(module: nn.Module) -> list[str]:
    """What a conversion may have added to a module: names of parameters, submodules and attributes."""
    return [*module._parameters, *module._modules, *module.__dict__]


def _undo(model: nn.Module, classes: dict[int, type[nn.Module]], before: dict[int, set[str]]) -> None:
    """Give every module its class and its contents of before back."""
    for module in list(model.modules()):
        if not isinstance(module, NoisyLayer):
            continue
        for names in (module._parameters, module._modules, module.__dict__):
            for name in set(names) - before[id(module)]:
                del names[name]
        _set_class_(module, classes[id(module)])


def deterministic_(model: nn.Module, threshold: float | None = None) -> nn.Module:
    """Turn a converted model back into plain layers of the same shape, in place.

    Dead weights become exact zeros and gates are folded into the weights, so that the outputs are those of the
    converted model in eval mode. Use `vbdrop.compress` for a smaller model.

    Args:
        model: A converted model; a plain one is returned as it is.
        threshold: The ``log_alpha`` from which on weights and units are dead; None for each one's own.

    Returns:
        The same model.

    Example:
        >>> import vbdrop
        >>> model = nn.Linear(8, 4)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> type(vbdrop.deterministic_(model))
        <class 'torch.nn.modules.linear.Linear'>
    """
    plain = {noisy: nn_type for nn_type, noisy in LAYERS.items()}
    for module in list(model.modules()):
        if isinstance(module, NoisyLayer):
            module.make_plain_(threshold)
            _set_class_(module, plain[type(module)])
    sync_fast_paths_(model)
    return model
