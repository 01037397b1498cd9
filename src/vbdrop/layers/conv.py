"""Convolutions and transposed convolutions in one to three dimensions, with noisy weights or gates."""

from typing import cast

import torch.nn.functional as F
from torch import Tensor, nn

from vbdrop._torch_compat import ConvNd, ConvTransposeNd, output_padding
from vbdrop.functional import Convolution
from vbdrop.layers.layer import NoisyLayer


class _NoisyConvNd(NoisyLayer, ConvNd):
    """What plain and transposed convolutions share."""

    @property
    def _dims(self) -> int:
        return len(self.kernel_size)

    @property
    def unit_axis(self) -> int:
        """The channels come before the spatial axes."""
        return -1 - self._dims

    @property
    def n_inputs(self) -> int:
        """The number of input channels."""
        return self.in_channels

    @property
    def n_outputs(self) -> int:
        """The number of output channels."""
        return self.out_channels

    def _column(self, values: Tensor) -> Tensor:
        """Values along the weight's first axis."""
        return values.view(-1, *[1] * (self._dims + 1))

    def _grouped(self, values: Tensor) -> Tensor:
        """Values along the weight's second axis, where each block of rows has the values of its group."""
        rows = self.weight.shape[0] // self.groups
        blocks = values.view(self.groups, -1).repeat_interleave(rows, dim=0)
        return blocks.view(*blocks.shape, *[1] * self._dims)

    def _batched(self, x: Tensor, product: Convolution) -> Tensor:
        """The forward for a batch, or for one example without a batch axis."""
        if x.dim() == self._dims + 1:
            return self.noisy_forward(x.unsqueeze(0), product).squeeze(0)
        return self.noisy_forward(x, product)


class _NoisyConv(_NoisyConvNd):
    """A convolution: the weight is [out, in / groups, ...]."""

    def per_input(self, values: Tensor) -> Tensor:
        """Along the second axis, by group."""
        return self._grouped(values)

    def per_output(self, values: Tensor) -> Tensor:
        """Along the first axis."""
        return self._column(values)

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output, with noise in training."""
        none = (0,) * self._dims
        if self.padding_mode != "zeros":
            input, padding = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode), none
        elif self.padding == "same":
            input, padding = self._same(input)
        else:  # read at every call, as torch does, since some networks change it after construction
            padding = none if isinstance(self.padding, str) else self.padding
        product = Convolution(self.stride, padding, self.dilation, output_padding=none, groups=self.groups)
        return self._batched(input, product)

    def _same(self, input: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        """The padding 'same': half of what the kernel removes on each side; an odd remainder goes to the end."""
        taken = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
        if any(t % 2 for t in taken):
            input = F.pad(input, [zeros for t in reversed(taken) for zeros in (0, t % 2)])
        return input, tuple(t // 2 for t in taken)


class _NoisyConvTranspose(_NoisyConvNd, ConvTransposeNd):
    """A transposed convolution: the weight is [in, out / groups, ...]."""

    def per_input(self, values: Tensor) -> Tensor:
        """Along the first axis."""
        return self._column(values)

    def per_output(self, values: Tensor) -> Tensor:
        """Along the second axis, by group."""
        return self._grouped(values)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        """The layer's output, with noise in training."""
        padding = cast(tuple[int, ...], self.padding)  # never a string for a transposed convolution
        extra = tuple(output_padding(self, input, output_size))
        product = Convolution(self.stride, padding, self.dilation, True, extra, self.groups)
        return self._batched(input, product)


class Conv1d(_NoisyConv, nn.Conv1d):
    """`torch.nn.Conv1d` after `vbdrop.convert_`."""


class Conv2d(_NoisyConv, nn.Conv2d):
    """`torch.nn.Conv2d` after `vbdrop.convert_`."""


class Conv3d(_NoisyConv, nn.Conv3d):
    """`torch.nn.Conv3d` after `vbdrop.convert_`."""


class ConvTranspose1d(_NoisyConvTranspose, nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d` after `vbdrop.convert_`."""


class ConvTranspose2d(_NoisyConvTranspose, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d` after `vbdrop.convert_`."""


class ConvTranspose3d(_NoisyConvTranspose, nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d` after `vbdrop.convert_`."""
