"""The speed of a network after whole units were removed, against the original, in plain PyTorch.

    python -m benchmarks.structured [--threads 1] [--batch 64] [--rounds 40]

LeNet-5 (20-50-800-500) is masked to the given numbers of units, with no training, and compressed. Original and small
model run interleaved in one process.
"""

import argparse
import copy
import statistics

import torch
from torch import nn

from benchmarks.timing import interleaved, ratio
from vbdrop.compress import compress
from vbdrop.models import LeNet5

CASES = {"8-13-208-13": (8, 13, 13), "5-10-160-16": (5, 10, 16)}
"""The channels of both convolutions and the units of the hidden layer that are left."""


@torch.no_grad()
def masked(model: LeNet5, units: tuple[int, int, int]) -> nn.Module:
    """A copy with so many units of each layer; what leaves the others is multiplied by zero."""
    model = copy.deepcopy(model)
    conv1, conv2, hidden = units
    model.conv2.weight[:, conv1:] = 0
    model.fc1.weight.view(500, 50, 16)[:, conv2:] = 0
    model.fc2.weight[:, hidden:] = 0
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    images = torch.rand(args.batch, 1, 28, 28)
    original = LeNet5().eval()
    models = {"original": original} | {
        name: compress(masked(original, units), images).model for name, units in CASES.items()
    }
    with torch.no_grad():
        seconds = interleaved({name: lambda m=model: m(images) for name, model in models.items()}, args.rounds)
    print(f"torch {torch.__version__}, {args.threads} threads, batch {args.batch}, {args.rounds} rounds")
    for name, times in seconds.items():
        faster = 1 / ratio(seconds, name, "original")
        print(f"{name:<12} {1e3 * statistics.median(times):8.3f} ms   {faster:5.2f} times faster")


if __name__ == "__main__":
    main()
