"""Modules that read the weights of their layers themselves."""

from torch import Tensor, nn, relu
from torch.nn import functional as F


class Attention(nn.Module):
    """Passes the weights of its layers to functions, as torchvision's Swin attention does."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = F.linear(x, self.qkv.weight, self.qkv.bias).chunk(3, -1)
        return F.linear(F.scaled_dot_product_attention(q, k, v), self.proj.weight, self.proj.bias)


class TiedDecoder(nn.Module):
    """Decodes with the weights of its encoder."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(inputs, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(relu(self.encoder(x)), self.encoder.weight.t())
