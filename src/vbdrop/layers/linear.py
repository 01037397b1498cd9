"""A linear layer with noisy weights or gates."""

from torch import Tensor, nn

from vbdrop.functional import MatrixProduct
from vbdrop.layers.layer import NoisyLayer


class Linear(NoisyLayer, nn.Linear):  # type: ignore[misc]  # torch's stub has no `bias=False`
    """`torch.nn.Linear` after `vbdrop.convert_`.

    Example:
        >>> import torch, vbdrop
        >>> layer = torch.nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(layer, vbdrop.Weights())
        >>> type(layer).__name__, tuple(layer.log_sigma2.shape)
        ('Linear', (2, 4))
    """

    @property
    def unit_axis(self) -> int:
        """The features are the last axis."""
        return -1

    @property
    def n_inputs(self) -> int:
        """The number of input features."""
        return self.in_features

    @property
    def n_outputs(self) -> int:
        """The number of output features."""
        return self.out_features

    def per_input(self, values: Tensor) -> Tensor:
        """A row, since the weight's columns are the inputs."""
        return values.unsqueeze(0)

    def per_output(self, values: Tensor) -> Tensor:
        """A column, since the weight's rows are the outputs."""
        return values.unsqueeze(1)

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output, with noise in training."""
        return self.noisy_forward(input, MatrixProduct())
