"""Shrink recurrent classifiers that tell which of nine speakers says two vowels (JapaneseVowels).

    pip install --no-deps aeon     # the recordings are among its files; nothing of it is imported
    python -m benchmarks.recurrent [--kind lstm gru] [--seeds 3] [--epochs 120] [--macs 5]

The networks have two bidirectional layers and read packed sequences of 7 to 29 steps of 12 numbers. The plain network
and `vbdrop.shrink` get the same number of epochs, the same optimizer and the same learning rate; the accuracy is that
on the 370 test recordings, after the last epoch. Each printed line is one run as JSON; the table comes last.
"""

import argparse
import json
import statistics
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

import vbdrop

KINDS = {"lstm": nn.LSTM, "gru": nn.GRU}
CLASSES, FEATURES, HIDDEN = 9, 12, 64
LR, BATCH = 2e-3, 30


class Speaker(nn.Module):
    """A classifier of padded sequences; its recurrent layers see each sequence only up to its own end."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], hidden: int = HIDDEN) -> None:
        super().__init__()
        self.rnn = kind(FEATURES, hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """The logits; a step of zeros is padding."""
        lengths = (x != 0).any(-1).sum(1).cpu()
        _, states = self.rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
        last = states[0] if isinstance(self.rnn, nn.LSTM) else states
        return self.head(torch.cat([last[-2], last[-1]], -1))


def recordings(part: str) -> tuple[Tensor, Tensor]:
    """The sequences, padded with zeros, and the speakers: ``"TRAIN"`` or ``"TEST"``."""
    package = find_spec("aeon")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("The recordings come with aeon: pip install --no-deps aeon")
    folder = Path(package.submodule_search_locations[0]) / "datasets/data/JapaneseVowels"
    lines = (folder / f"JapaneseVowels_{part}.ts").read_text().partition("@data\n")[2].splitlines()
    sequences, speakers = [], []
    for line in lines:
        *features, speaker = line.split(":")
        sequences.append(torch.tensor([[float(number) for number in f.split(",")] for f in features]).T)
        speakers.append(int(speaker) - 1)
    return pad_sequence(sequences, batch_first=True), torch.tensor(speakers)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """The share of right answers in eval mode, in percent."""
    with torch.no_grad():
        return 100 * float((model.eval()(x).argmax(1) == y).double().mean())


def train_plain(model: nn.Module, x: Tensor, y: Tensor, epochs: int, seed: int) -> None:
    """Train as `vbdrop.shrink` does, without noise."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(x), generator=generator).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[batch]), y[batch]).backward()
            optimizer.step()


def run(kind: str, seed: int, epochs: int, macs: float) -> dict[str, Any]:
    """One plain network and one small one."""
    (x, y), (test_x, test_y) = recordings("TRAIN"), recordings("TEST")
    torch.manual_seed(seed)
    plain = Speaker(KINDS[kind])
    torch.manual_seed(seed)
    start = Speaker(KINDS[kind])
    began = time.perf_counter()
    train_plain(plain, x, y, epochs, seed)
    between = time.perf_counter()
    result = vbdrop.shrink(
        start, (x, y), target=vbdrop.Target(macs=macs), epochs=epochs, lr=LR, batch_size=BATCH, seed=seed
    )
    small = result.model
    return {
        "kind": kind,
        "seed": seed,
        "plain": accuracy(plain, test_x, test_y),
        "small": accuracy(small, test_x, test_y),
        "parameters": sum(p.numel() for p in plain.parameters()),
        "left": sum(p.numel() for p in small.parameters()),
        "rnn": str(small.rnn),
        "slower": (time.perf_counter() - between) / (between - began),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run all and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--macs", type=float, default=5.0)
    options = parser.parse_args(arguments)
    rows = []
    for kind in options.kind:
        runs = []
        for seed in range(options.seeds):
            runs.append(run(kind, seed, options.epochs, options.macs))
            print(json.dumps(runs[-1]), flush=True)
        cells = [_spread([each[name] for each in runs]) for name in ("plain", "small")]
        fewer = [each["parameters"] / each["left"] for each in runs]
        rows.append(f"| {kind.upper()} | {cells[0]} | {cells[1]} | {runs[0]['parameters']:,} | {_spread(fewer)} |")
    print("\n| | plain, % right | small, % right | parameters | times fewer |\n|---|---|---|---|---|")
    print("\n".join(rows))


def _spread(values: list[float]) -> str:
    """The mean and, if there are several values, the standard deviation."""
    deviation = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{deviation}"


if __name__ == "__main__":
    main()
