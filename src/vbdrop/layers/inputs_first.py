"""A linear layer whose weight has its inputs on the first axis, like `Conv1D` in Hugging Face's GPT-2."""

from torch import Tensor

from vbdrop.functional import InputsFirstProduct
from vbdrop.layers.layer import NoisyLayer


class InputsFirstLinear(NoisyLayer):
    """The noisy part of a layer that computes ``x @ weight + bias``, to be combined with the plain class.

    Example:
        >>> import torch, vbdrop
        >>> class Transposed(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight, self.bias = torch.nn.Parameter(torch.ones(4, 2)), None
        >>> class NoisyTransposed(InputsFirstLinear, Transposed):
        ...     pass
        >>> vbdrop.register_layer(Transposed, NoisyTransposed)
        >>> layer = Transposed()
        >>> _ = vbdrop.convert_(layer, vbdrop.Units())
        >>> layer.n_inputs, layer.n_outputs, layer.eval()(torch.ones(1, 4)).tolist()
        (4, 2, [[4.0, 4.0]])
    """

    @property
    def unit_axis(self) -> int:
        """The features are the last axis."""
        return -1

    @property
    def n_inputs(self) -> int:
        """The number of input features."""
        return self.weight.shape[0]

    @property
    def n_outputs(self) -> int:
        """The number of output features."""
        return self.weight.shape[1]

    def per_input(self, values: Tensor) -> Tensor:
        """A column, since the weight's rows are the inputs."""
        return values.unsqueeze(1)

    def per_output(self, values: Tensor) -> Tensor:
        """A row, since the weight's columns are the outputs."""
        return values.unsqueeze(0)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, with noise in training."""
        return self.noisy_forward(x, InputsFirstProduct())
