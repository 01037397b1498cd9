"""Whether targets are met with default settings, and what their errors are against hand-chosen KL weights.

    python -m benchmarks.targets [--data digits] [--network lenet-300-100 ...] [--target weights=10 ...] [--seeds 1]
    python -m benchmarks.targets --compare 0.03 0.1 0.3 1 --target weights=10 weights=30 weights=100 --seeds 3

Each run is one call of `vbdrop.shrink` on the training data; the error is that on the test data, after the last epoch.
With ``--compare``, each target is also pursued with KL weights that are held, after a ramp over the first third of the
press stage: the same stages, epochs and exact cut, without the controller and the path. Each line that is printed is
one run as JSON; the tables come last.
"""

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from vbdrop.data import load
from vbdrop.models import build
from vbdrop.objective import ELBO
from vbdrop.targets import Pursuit, Target

RAMP = 1 / 3
"""The share of the press stage over which a hand-chosen KL weight rises."""

LR = 2e-3


class Block(nn.Module):
    """Two convolutions with batch normalization, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the convolutions find."""
        return F.relu(x + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))))


class ResNet(nn.Module):
    """A stem, two blocks and a linear head, for images of 28 x 28."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 5, stride=4, padding=2)
        self.blocks = nn.Sequential(Block(channels), Block(channels))
        self.head = nn.Linear(channels * 49, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch."""
        return self.head(self.blocks(F.relu(self.stem(x))).flatten(1))


@dataclass(frozen=True, repr=False)
class HeldTarget(Target):
    """A target that is pursued with one KL weight."""

    held: float = 1.0

    def start(self, elbo: ELBO) -> "HeldPursuit":
        """Start the pursuit."""
        return HeldPursuit(self, elbo)


class HeldPursuit(Pursuit):
    """Presses with a KL weight that was chosen by hand, and removes nothing before the cut."""

    def _press(self) -> None:
        """Raise the weight, or hold it."""
        held = self.target.held if isinstance(self.target, HeldTarget) else 1.0
        share = self.path.pressed(self.share) / RAMP
        self._held = held * min(1.0, max(0.01, share))

    def _is_due(self) -> bool:
        return True

    def _set_weight(self) -> None:
        self._elbo.kl_weight = 0.0 if self.is_cut else getattr(self, "_held", 0.0)


def run(data: Any, name: str, target: Target, epochs: int, seed: int) -> dict[str, Any]:  # noqa: ANN401
    """One run: where it ends, and its error."""
    torch.manual_seed(seed)
    model = ResNet() if name == "resnet" else build(name)
    start = time.monotonic()
    train, test = data
    result = vbdrop.shrink(model, train, valid=test, target=target, epochs=epochs, lr=LR, seed=seed)
    limit = result.limit or 0.0
    weights = [point.kl_weight for point in result.curve if point.stage == "press"]
    return {
        "network": name, "target": f"{result.unit}={result.before / limit:g}", "seed": seed, "epochs": epochs,
        "held": getattr(target, "held", None), "size": result.size, "limit": limit, "of limit": result.size / limit,
        "times": result.times, "error_before": result.error_before, "error": result.error,
        "kl_weight": weights[-1] if weights else 0.0, "seconds": time.monotonic() - start,
        "shapes": [list(layer.small_shape or ()) for layer in result.summary().layers],
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Make the runs, print them, and return them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--images", type=int, help="so many training images; else all")
    parser.add_argument("--network", nargs="+", default=["lenet-300-100"], help="a network of vbdrop, or resnet")
    parser.add_argument("--target", nargs="+", default=["weights=10", "weights=30", "weights=100", "macs=3", "macs=10"])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--compare", nargs="*", type=float, default=[], help="KL weights to hold, for comparison")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    found = load(args.data)
    train = _scaled(found.train_images)[: args.images], found.train_labels.long()[: args.images]
    data = train, (_scaled(found.test_images), found.test_labels.long())
    runs = []
    for name in args.network:
        for text in args.target:
            target = Target.parse(text)
            options = {field: getattr(target, field) for field in ("weights", "parameters", "macs", "max_bytes")}
            targets = [target, *(HeldTarget(**options, held=held) for held in args.compare)]
            for seed in range(args.seeds):
                for each in targets:
                    runs.append(run(data, name, each, args.epochs, seed))
                    print(json.dumps(runs[-1]), flush=True)
    print(table(runs))
    return runs


def table(runs: list[dict[str, Any]]) -> str:
    """One line per network and target: the errors of the target and of the best KL weight, over seeds."""
    titles = ("network", "target", "n", "size / limit", "error before", "error", "best held KL weight", "its error")
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for key in dict.fromkeys((one["network"], one["target"]) for one in runs):
        chosen = [one for one in runs if (one["network"], one["target"]) == key]
        own = [one for one in chosen if one["held"] is None]
        held: dict[float, list[float]] = {}
        for one in chosen:
            if one["held"] is not None:
                held.setdefault(one["held"], []).append(one["error"])
        best = min(held, key=lambda weight: statistics.mean(held[weight]), default=None)
        errors = "–" if best is None else _spread(held[best])
        sizes = [one["of limit"] for one in own]
        lines.append(
            f"| {key[0]} | {key[1]} | {len(own)} | {min(sizes):.3f} to {max(sizes):.3f} | "
            f"{_spread([one['error_before'] for one in own])} | {_spread([one['error'] for one in own])} | "
            f"{'–' if best is None else best} | {errors} |"
        )
    return "\n".join(lines)


def _scaled(images: Tensor) -> Tensor:
    """Images as numbers from 0 to 1, with a channel axis."""
    images = images.unsqueeze(1) if images.dim() == 3 else images
    return images if images.is_floating_point() else images.float() / 255


def _spread(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


if __name__ == "__main__":
    main()
