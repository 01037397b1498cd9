"""Torch's fast path for transformer encoders, which reads weights directly and would bypass masks and noise."""

from torch import nn

from vbdrop.layers import CountedNorm, GatedNorm, NoisyLayer, OpenAttention

_BYPASSED = (NoisyLayer, GatedNorm, CountedNorm, OpenAttention)

_KEPT = "_vbdrop_kept_fast_path"


def _is_noisy(module: nn.Module) -> bool:
    return any(isinstance(child, _BYPASSED) for child in module.modules())


def _flag(module: nn.Module) -> str | None:
    """The attribute with which torch decides whether this module may take its fast path."""
    if isinstance(module, nn.TransformerEncoderLayer):
        return "activation_relu_or_gelu"
    return "use_nested_tensor" if isinstance(module, nn.TransformerEncoder) else None


def sync_fast_paths_(model: nn.Module) -> None:
    """Disable the fast path of every encoder that has a layer it would bypass, and enable it again for the others.

    Such a layer is a noisy one, a norm that scales or still counts removed channels, or an `OpenAttention`.
    """
    for module in model.modules():
        flag = _flag(module)
        if flag is None:
            continue
        if _is_noisy(module):
            module.__dict__.setdefault(_KEPT, getattr(module, flag))
            setattr(module, flag, 0)
        elif _KEPT in module.__dict__:
            setattr(module, flag, module.__dict__.pop(_KEPT))
