"""Torch's fast path for transformer encoders, which reads weights directly and would bypass masks and noise."""

from torch import nn

from vbdrop.layers import CountedNorm, GatedNorm, NoisyLayer, OpenAttention

_BYPASSED = (NoisyLayer, GatedNorm, CountedNorm, OpenAttention)

_KEPT = "_vbdrop_kept_fast_path"


def _is_noisy(module: nn.Module) -> bool:
    return any(isinstance(child, _BYPASSED) for child in module.modules())


NESTED = "use_nested_tensor"
"""The attribute of an encoder that lets it leave out padded positions, and return zeros there."""


def _flag(module: nn.Module) -> str | None:
    """The attribute with which torch decides whether this module may take its fast path."""
    if isinstance(module, nn.TransformerEncoderLayer):
        return "activation_relu_or_gelu"
    return NESTED if isinstance(module, nn.TransformerEncoder) else None


def sync_fast_paths_(model: nn.Module) -> None:
    """Disable the fast path of every encoder that has a layer it would bypass, and enable it again for the others.

    Such a layer is a noisy one, a norm that scales or still counts removed channels, or an `OpenAttention`. Nested
    tensors stay disabled in an encoder that had one: with them it would return zeros at padded positions, where it
    returned other values before.
    """
    for module in model.modules():
        flag = _flag(module)
        if flag is None:
            continue
        if _is_noisy(module):
            module.__dict__.setdefault(_KEPT, getattr(module, flag))
            setattr(module, flag, 0)
        elif _KEPT in module.__dict__:
            kept = module.__dict__.pop(_KEPT)
            setattr(module, flag, False if flag == NESTED else kept)


def has_lost_nested_tensors(module: nn.Module) -> bool:
    """Whether this is an encoder that was built to use nested tensors and does not use them."""
    is_encoder = isinstance(module, nn.TransformerEncoder)
    return is_encoder and bool(module.enable_nested_tensor) and not getattr(module, NESTED)
