"""Attention masks of torch's transformers in a trace, where tensors have no values."""

from collections.abc import Iterator
from contextlib import contextmanager

from vbdrop._torch_compat import causal_detection


@contextmanager
def masks_as_given() -> Iterator[None]:
    """Let a trace of `torch.nn.TransformerEncoder` and its relatives use a mask without testing whether it is causal.

    Without the hint ``is_causal``, torch compares the values of the mask with those of a causal one, but a trace has
    no values. The hint only selects a kernel: the outputs are the same without it.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from vbdrop.analysis.graph import trace
        >>> encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1, enable_nested_tensor=False).eval()
        >>> mask = nn.Transformer.generate_square_subsequent_mask(3)
        >>> len(trace(encoder, (torch.zeros(3, 2, 4), mask)).inputs)
        2
    """
    detect = getattr(*causal_detection)
    setattr(*causal_detection, lambda mask, is_causal=None, size=None: bool(is_causal))
    try:
        yield
    finally:
        setattr(*causal_detection, detect)
