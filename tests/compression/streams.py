"""Small networks with a residual stream or a tied embedding: a transformer, and parts of one."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

NORMS = {
    "layer": nn.LayerNorm,
    "rms": lambda width: nn.RMSNorm(width, eps=1e-6),
    "unscaled": lambda width: nn.LayerNorm(width, elementwise_affine=False),
}


class Block(nn.Module):
    def __init__(self, width: int, heads: int, norm: str, behind: bool) -> None:
        super().__init__()
        self.num_heads, self.behind = heads, behind
        self.norm1, self.norm2 = NORMS[norm](width), NORMS[norm](width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        if self.behind:
            x = self.norm1(x + self.attend(x))
            return self.norm2(x + self.down(F.gelu(self.up(x))))
        x = x + self.attend(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Stream(nn.Module):
    """Classes of sequences of tokens; with ``behind``, norms are behind the sums, as in BERT."""

    def __init__(self, norm: str = "layer", behind: bool = False, width: int = 12, tied: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, width)
        self.positions = nn.Parameter(torch.randn(1, 16, width))
        self.blocks = nn.ModuleList(Block(width, 3, norm, behind) for _ in range(2))
        self.norm, self.head = NORMS[norm](width), nn.Linear(width, 20 if tied else 4, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def tokens(batch: int, length: int) -> Tensor:
    return torch.randint(0, 20, (batch, length), generator=torch.Generator().manual_seed(batch + length))


class FeedForward(nn.Module):
    """A block of a residual stream without attention."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Words(nn.Module):
    """A language model whose last layer has the weight of its embedding."""

    def __init__(self, words: int = 20, residual: bool = False) -> None:
        super().__init__()
        self.words, self.wide, self.narrow = nn.Embedding(words, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.out = nn.Linear(8, words, bias=False)
        self.out.weight = self.words.weight
        self.residual = residual

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        y = self.narrow(self.wide(x).relu())
        return self.out(x + y if self.residual else y)
