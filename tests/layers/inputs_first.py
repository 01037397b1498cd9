"""A linear layer in the layout of Hugging Face's `Conv1D`, without that package."""

import torch
from torch import Tensor, nn

from vbdrop.layers import InputsFirstLinear


class Transposed(nn.Module):
    """``x @ weight + bias``, with the weight as [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class NoisyTransposed(InputsFirstLinear, Transposed):
    pass
