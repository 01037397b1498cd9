"""Measure the speed of a network after whole units are removed, against the original, in plain PyTorch.

    python -m benchmarks.structured [--threads 1] [--batch 64] [--rounds 200]

LeNet-5 (20-50-800-500) is masked to the given numbers of units, with no training, and compressed. Original and small
models run interleaved in one process on digits, in the usual memory format and in `torch.channels_last`, in which
PyTorch pools faster. On a machine that is also doing other work, the fastest calls say more than the median.
"""

import argparse
import copy
import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.timing import ratio
from vbdrop.compression import compress
from vbdrop.data import digits
from vbdrop.exporting.latency import interleaved
from vbdrop.models import LeNet5

CASES = {"8-13-208-13": (8, 13, 13), "5-10-160-16": (5, 10, 16)}
"""The remaining channels of both convolutions, and the remaining units of the hidden layer."""


@torch.no_grad()
def masked(model: LeNet5, units: tuple[int, int, int]) -> nn.Module:
    """A copy with this many units in each layer; the outputs of the others are multiplied by zero."""
    model = copy.deepcopy(model)
    conv1, conv2, hidden = units
    model.conv2.weight[:, conv1:] = 0
    model.fc1.weight.view(500, 50, 16)[:, conv2:] = 0
    model.fc2.weight[:, hidden:] = 0
    return model


def forward(model: nn.Module, images: Tensor) -> Callable[[int], Tensor]:
    return lambda _: model(images)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    images = digits().test_images[: args.batch]
    original = LeNet5().eval()
    models = {"original": original} | {
        name: compress(masked(original, units), images).model for name, units in CASES.items()
    }
    for name, model in list(models.items()):
        models[f"{name}, channels last"] = copy.deepcopy(model).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        seconds = interleaved({name: forward(model, images) for name, model in models.items()}, args.rounds)
    print(f"torch {torch.__version__}, {args.threads} threads, batch {args.batch}, {args.rounds} rounds")
    print(f"{'':<28}{'median':>10}{'times faster':>14}{'fastest':>11}{'times faster':>14}")
    for name, times in seconds.items():
        median, fastest = statistics.median(times), min(times)
        by_median, by_fastest = 1 / ratio(seconds, name, "original"), min(seconds["original"]) / fastest
        print(f"{name:<28}{1e3 * median:7.2f} ms{by_median:14.2f}{1e3 * fastest:8.2f} ms{by_fastest:14.2f}")


if __name__ == "__main__":
    main()
