"""Attentions of torch are opened for the gates of their heads, and closed again where they got none."""

from torch import nn

from vbdrop.layers import NoisyLayer, OpenAttention
from vbdrop.layers.attention import open_, why_closed


def open_attentions_(model: nn.Module) -> None:
    """Let every `torch.nn.MultiheadAttention` that can compute in the open, in place.

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
    """Give the attentions their own class back that have no noisy layer and all of their heads."""
    for module in model.modules():
        if type(module) is not OpenAttention or isinstance(module.out_proj, NoisyLayer):
            continue
        if module.out_proj.in_features == module.out_proj.out_features == module.embed_dim:
            module.__class__ = nn.MultiheadAttention  # type: ignore[assignment]  # the class that it had
