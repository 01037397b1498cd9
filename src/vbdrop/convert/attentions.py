"""Turn torch's attention modules into ones whose heads can have gates, and restore those that got none."""

from torch import nn

from vbdrop.layers import NoisyLayer, OpenAttention
from vbdrop.layers.attention import open_, why_closed


def open_attentions_(model: nn.Module) -> None:
    """Turn every `torch.nn.MultiheadAttention` that allows it into an `OpenAttention`, in place.

    Example:
        >>> model = nn.Sequential(nn.TransformerEncoderLayer(4, 2))
        >>> open_attentions_(model)
        >>> type(model[0].self_attn).__name__
        'OpenAttention'
    """
    for module in model.modules():
        if type(module) is nn.MultiheadAttention and why_closed(module) is None:
            open_(module)


def close_attentions_(model: nn.Module) -> None:
    """Restore the class of every attention module that has no noisy layer and still has all of its heads."""
    for module in model.modules():
        if type(module) is not OpenAttention or isinstance(module.out_proj, NoisyLayer):
            continue
        if module.out_proj.in_features == module.out_proj.out_features == module.embed_dim:
            module.__class__ = nn.MultiheadAttention  # type: ignore[assignment]  # the original class
