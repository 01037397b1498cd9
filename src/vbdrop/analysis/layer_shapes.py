"""The torch modules that can be made smaller: which attributes and which axes of the weight hold the unit counts."""

from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import SyncBatchNorm

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, SyncBatchNorm)


INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@dataclass(frozen=True)
class Shape:
    """Where a module keeps its numbers of input and output units.

    Attributes:
        inputs: The attribute with the number of inputs, or None if the module has no such number.
        outputs: The attribute with the number of outputs.
        inputs_first: Whether the weight's first axis runs over inputs.
    """

    inputs: str | None
    outputs: str
    inputs_first: bool = False


SHAPES: dict[type[nn.Module], Shape] = {
    nn.Linear: Shape("in_features", "out_features"),
    **{kind: Shape("in_channels", "out_channels") for kind in CONVOLUTIONS},
    **{kind: Shape("in_channels", "out_channels", inputs_first=True) for kind in TRANSPOSED},
    **{kind: Shape(None, "num_features") for kind in BATCH_NORMS},
    nn.PReLU: Shape(None, "num_parameters"),
    nn.Embedding: Shape(None, "embedding_dim"),
    nn.GroupNorm: Shape(None, "num_channels"),
    **{kind: Shape(None, "num_features") for kind in INSTANCE_NORMS},
}
"""Module class -> shape; the nearest base class applies, since the trace shows what a subclass computes."""

NAMED_SHAPES = {"transformers.pytorch_utils.Conv1D": Shape("nx", "nf", inputs_first=True)}
"""The same for classes of other packages, by their full names, so that these packages need not be imported."""


def shape_of(module: nn.Module) -> Shape | None:
    """Where a module keeps its numbers of units, or None if unknown.

    Example:
        >>> class Activated(nn.BatchNorm2d):
        ...     pass
        >>> shape_of(Activated(3)).outputs
        'num_features'
    """
    for kind in type(module).__mro__:
        found = SHAPES.get(kind) or NAMED_SHAPES.get(f"{kind.__module__}.{kind.__qualname__}")
        if found is not None:
            return found
    return None


COUNTS = (
    *("num_heads", "num_attention_heads", "num_key_value_heads", "num_kv_heads", "n_heads", "n_head", "nhead", "heads"),
    *("attn_dim", "all_head_size", "inner_dim", "split_size", "embed_dim"),
)
"""Attributes from which a custom forward reads numbers of heads and channels."""

HEAD_SIZES = ("head_dim", "attention_head_size", "head_size", "dim_head", "dim_per_head", "d_head", "kv_channels")
"""Attributes from which a custom forward reads the number of features of a head."""


def owner(name: str) -> str:
    """The dotted name of the module that holds a parameter.

    Example:
        >>> owner("block.0.weight"), owner("weight")
        ('block.0', '')
    """
    return name.rpartition(".")[0]


def beside(name: str, other: str) -> str:
    """The dotted name of another tensor in the same module.

    Example:
        >>> beside("block.0.weight", "bias"), beside("weight", "bias")
        ('block.0.bias', 'bias')
    """
    path = owner(name)
    return f"{path}.{other}" if path else other
