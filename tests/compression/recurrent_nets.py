"""Recurrent networks in the forms that people write, with units that can be killed."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vbdrop.layers import Gate

WORDS, DIM, HIDDEN = 20, 6, 5


class Tagger(nn.Module):
    """Tokens in; one label for each, and one for the whole sequence, from the last states or from the mean."""

    def __init__(self, kind=nn.LSTM, *, states: bool = True, **options) -> None:
        super().__init__()
        options = {"num_layers": 2, "bidirectional": True, "batch_first": True, **options}
        self.embedding = nn.Embedding(WORDS, DIM, padding_idx=0)
        self.rnn = kind(DIM, HIDDEN, **options)
        width = (options.get("proj_size") or HIDDEN) * (1 + options["bidirectional"])
        self.tag, self.whole, self.states = nn.Linear(width, 3), nn.Linear(width, 4), states

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        output, states = self.rnn(self.embedding(tokens))
        last = states[0] if isinstance(self.rnn, nn.LSTM) else states
        if not self.states:
            return self.tag(output), self.whole(output.mean(1))
        ends = torch.cat([last[-2], last[-1]], -1) if self.rnn.bidirectional else last[-1]
        return self.tag(output), self.whole(ends)


class Packed(nn.Module):
    """The same on numbers, with sequences of unequal lengths, packed."""

    def __init__(self, kind=nn.GRU, *, batch_first: bool = True) -> None:
        super().__init__()
        self.enter = nn.Linear(4, DIM)
        self.rnn = kind(DIM, HIDDEN, num_layers=2, bidirectional=True, batch_first=batch_first)
        self.tag, self.whole = nn.Linear(2 * HIDDEN, 3), nn.Linear(2 * HIDDEN, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        first, x = self.rnn.batch_first, torch.relu(self.enter(x))
        x = x if first else x.transpose(0, 1)
        output, states = self.rnn(pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False))
        last = states[0] if isinstance(self.rnn, nn.LSTM) else states
        return self.tag(pad_packed_sequence(output, batch_first=first)[0]), self.whole(
            torch.cat([last[-2], last[-1]], 1)
        )


def tokens(batch: int = 4, steps: int = 7) -> Tensor:
    return torch.randint(0, WORDS, (batch, steps))


@torch.no_grad()
def kill_(model: nn.Module, share: float = 0.4) -> nn.Module:
    """Let a share of all gates be dead, at random, and the others have any value."""
    for gate in model.modules():
        if isinstance(gate, Gate):
            gate.weight.uniform_(0.5, 1.5)
            gate.log_sigma2.copy_(torch.where(torch.rand_like(gate.weight) < share, 5.0, -9.0))
    return model


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def assert_same(model, small, *inputs):
    for expected, found in zip(model(*inputs), small(*inputs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
