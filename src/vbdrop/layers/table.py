"""The table of layers: which noisy layer a torch layer becomes."""

from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from vbdrop.layers.attention import OutProjection
from vbdrop.layers.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from vbdrop.layers.layer import NoisyLayer
from vbdrop.layers.linear import Linear
from vbdrop.layers.recurrent import GRU, LSTM, RNN

LAYERS: dict[type[nn.Module], type[NoisyLayer]] = {
    nn.Linear: Linear,
    NonDynamicallyQuantizableLinear: OutProjection,
    nn.Conv1d: Conv1d,
    nn.Conv2d: Conv2d,
    nn.Conv3d: Conv3d,
    nn.ConvTranspose1d: ConvTranspose1d,
    nn.ConvTranspose2d: ConvTranspose2d,
    nn.ConvTranspose3d: ConvTranspose3d,
    nn.LSTM: LSTM,
    nn.GRU: GRU,
    nn.RNN: RNN,
}
"""Torch layer -> noisy layer. Matched by exact type, since a subclass may compute something else."""


def register_layer(nn_type: type[nn.Module], layer: type[NoisyLayer]) -> None:
    """Register the noisy class for a layer of your own.

    Args:
        nn_type: The plain layer's class.
        layer: A class that inherits from `vbdrop.layers.NoisyLayer` (or one of the layers in `vbdrop.layers`) and from
            ``nn_type``, so that a plain module can change to this class and back.

    Example:
        >>> import vbdrop.layers
        >>> class Scaled(nn.Linear):
        ...     pass
        >>> class NoisyScaled(vbdrop.layers.Linear, Scaled):
        ...     pass
        >>> register_layer(Scaled, NoisyScaled)
    """
    if not (isinstance(nn_type, type) and issubclass(nn_type, nn.Module)):
        raise TypeError(f"`nn_type` must be a subclass of torch.nn.Module; got {nn_type!r}.")
    if not (isinstance(layer, type) and issubclass(layer, NoisyLayer) and issubclass(layer, nn_type)):
        raise TypeError(
            f"`layer` must inherit from vbdrop.layers.NoisyLayer and from {nn_type.__name__}; got {layer!r}."
        )
    LAYERS[nn_type] = layer
