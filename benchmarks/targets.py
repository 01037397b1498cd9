"""Check whether targets are met with default settings, and compare their errors with hand-chosen KL weights.

    python -m benchmarks.targets [--data digits] [--network lenet-300-100 ...] [--target weights=10 ...] [--seeds 1]
    python -m benchmarks.targets --compare 0.03 0.1 0.3 1 --target weights=10 weights=30 weights=100 --seeds 3

Each run is one call of `vbdrop.shrink` on the training data; the error is that on the test data, after the last epoch.
With ``--compare``, each target is also pursued with KL weights that are held, after a ramp over the first third of the
press stage: the same stages, epochs and exact cut, without the controller and the path. Each printed line is one run
as JSON; the tables come last. With ``--records``, each run is also added to that file, and runs that it has are not
repeated. With ``--others``, networks that learn the embedded digits are also tested on the other 60,000 images of
MNIST, so that the errors depend less on the choice of images; the table then has these errors. With ``--images``, only
this many images are used to train and to test: enough to see where a run ends.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from vbdrop.data import load
from vbdrop.models import build
from vbdrop.objective import ELBO
from vbdrop.targets import Pursuit, ShrinkResult, Target
from vbdrop.targets.stopwatch import Timing
from vbdrop.targets.target import LIMITS, TIMES

RAMP = 1 / 3
"""The share of the press stage over which a hand-chosen KL weight rises."""

LR = 2e-3

HELD_OUT = 2000
"""The number of training images on which a tolerance is judged."""


class Block(nn.Module):
    """Two convolutions with batch normalization, and a skip connection around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Add the output of the convolutions to the input."""
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
    """A target that is pursued with a fixed KL weight."""

    held: float = 1.0

    def pursue(self, elbo: ELBO, timing: Timing | None = None) -> "HeldPursuit":
        """Hold the KL weight."""
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


@dataclass(frozen=True)
class Images:
    """Images to train on, and images for the error.

    Attributes:
        name: The name of the data set, and how it was split.
        train: Images and labels.
        test: The same, for the error: the test data, or training images that were held out.
        others: More images, only for the final error; None for none.
    """

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    others: tuple[Tensor, Tensor] | None = None


def images_of(name: str, held_out: int = 0) -> Images:
    """The images of a data set; with ``held_out``, that many training images take the place of the test data."""
    found = load(name)
    train = _scaled(found.train_images), found.train_labels.long()
    if not held_out:
        return Images(name, train, (_scaled(found.test_images), found.test_labels.long()))
    first, last = [part[:-held_out] for part in train], [part[-held_out:] for part in train]
    return Images(f"{name} without {held_out}", (first[0], first[1]), (last[0], last[1]))


def other_digits() -> tuple[Tensor, Tensor]:
    """The images of MNIST that are not among the embedded digits."""
    few, all_of_it = images_of("digits"), images_of("mnist")
    known = {_pixels(image) for part in (few.train, few.test) for image in part[0]}
    images, labels = (torch.cat(parts) for parts in zip(all_of_it.train, all_of_it.test, strict=True))
    rows = [row for row, image in enumerate(images) if _pixels(image) not in known]
    return images[rows], labels[rows]


def _pixels(image: Tensor) -> bytes:
    return (255 * image).round().byte().numpy().tobytes()


def error_on(model: nn.Module, images: tuple[Tensor, Tensor]) -> float:
    """The error of a model in percent."""
    with torch.no_grad():
        wrong = sum(
            int((model.eval()(x).argmax(1) != y).sum())
            for x, y in zip(*(part.split(1000) for part in images), strict=True)
        )
    return 100 * wrong / len(images[1])


def run(data: Images, name: str, target: Target, epochs: int, seed: int) -> dict[str, Any]:
    """Make one run, and return its final size and error."""
    torch.manual_seed(seed)
    model = ResNet() if name == "resnet" else build(name)
    start, used = time.monotonic(), time.process_time()
    result = vbdrop.shrink(model, data.train, valid=data.test, target=target, epochs=epochs, lr=LR, seed=seed)
    limit = result.limit or 0.0
    faster = measured_times(model, result) if result.unit == "latency" else None
    weights = [point.kl_weight for point in result.curve if point.stage == "press"]
    return {
        "unit": result.unit, "size": result.size, "limit": limit, "of limit": result.size / limit,
        "times": result.times, "faster": faster, "error_before": result.error_before, "error": result.error,
        "kl_weight": weights[-1] if weights else 0.0, "seconds": round(time.monotonic() - start, 1),
        "processor seconds": round(time.process_time() - used, 1),
        "shapes": [list(layer.small_shape or ()) for layer in result.summary().layers],
        **({} if data.others is None else {"others": error_on(result.model, data.others)}),
    }  # fmt: skip


def measured_times(model: nn.Module, result: ShrinkResult) -> float:
    """How many times faster the small model is in ONNX Runtime, for one example, as measured by `vbdrop.measure`."""
    with tempfile.TemporaryDirectory() as folder:
        exported = result.export(Path(folder) / "small.onnx")
        found = vbdrop.measure(model, result.small, [exported], batches=(1,))
    return found.faster("small, ONNX Runtime", 1, than="original, ONNX Runtime")


def run_within(data: Images, name: str, target: Target, epochs: int, seed: int) -> dict[str, Any]:
    """Shrink a trained network as far as a tolerance on held-out images allows; return its errors on test data."""
    torch.manual_seed(seed)
    model = ResNet() if name == "resnet" else build(name)
    train, valid = ([part[rows] for part in data.train] for rows in (slice(HELD_OUT, None), slice(HELD_OUT)))
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    for _ in range(epochs):
        for rows in torch.randperm(len(train[1])).split(100):
            optimizer.zero_grad()
            F.cross_entropy(model(train[0][rows]), train[1][rows]).backward()
            optimizer.step()
    result = vbdrop.shrink(
        model, tuple(train), valid=tuple(valid), target=replace(target, train=0.0), epochs=epochs, lr=LR, seed=seed
    )
    return {
        "unit": result.unit, "size": result.size, "limit": result.size, "of limit": 1.0, "times": result.times,
        "valid_before": result.error_before, "valid": result.error,
        "error_before": error_on(model, data.test), "error": error_on(result.model, data.test),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Make the runs, print them, and return them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="digits")
    parser.add_argument("--validation", type=int, default=0, help="hold out this many training images for the errors")
    parser.add_argument("--records", type=Path, help="a file of runs, one per line; those in it are not repeated")
    parser.add_argument("--network", nargs="+", default=["lenet-300-100"], help="a network of vbdrop, or resnet")
    parser.add_argument("--target", nargs="+", default=["weights=10", "weights=30", "weights=100", "macs=3", "macs=10"])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--compare", nargs="*", type=float, default=[], help="KL weights to hold, for comparison")
    parser.add_argument("--others", action="store_true", help="also test on the other images of MNIST")
    parser.add_argument("--images", type=int, help="use only this many images to train and to test")
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    data = images_of(args.data, args.validation)
    data = replace(data, others=other_digits()) if args.others else data
    if args.images is not None:
        train, test = ((part[0][: args.images], part[1][: args.images]) for part in (data.train, data.test))
        data = replace(data, name=f"{data.name}, first {args.images}", train=train, test=test)
    done = [] if args.records is None or not args.records.exists() else read(args.records)
    runs = []
    for name, text, seed in itertools.product(
        args.network, args.target, range(args.first_seed, args.first_seed + args.seeds)
    ):
        for held in (None, *args.compare):
            key = {"data": data.name, "network": name, "asked": text, "seed": seed, "epochs": args.epochs, "held": held}
            found = next((one for one in done if one.items() >= key.items()), None)
            if found is None:
                target = Target.parse(text) if held is None else held_target(text, held)
                make = run if target.within is None else run_within
                found = key | make(data, name, target, args.epochs, seed)
                print(json.dumps(found), flush=True)
                if args.records is not None:
                    with args.records.open("a") as file:
                        file.write(json.dumps(found) + "\n")
            runs.append(found)
    print(table(runs))
    return runs


def read(records: Path) -> list[dict[str, Any]]:
    """The runs in a file."""
    return [json.loads(line) for line in records.read_text().splitlines()]


def held_target(text: str, held: float) -> HeldTarget:
    """A target from the command line that is pursued with a fixed KL weight."""
    target = Target.parse(text)
    return HeldTarget(held=held, **{name: getattr(target, name) for name in (*TIMES, *LIMITS)})


def table(runs: list[dict[str, Any]]) -> str:
    """One line per network and target: the errors of the target and of the best KL weight, over seeds."""
    titles = ("network", "target", "n", "size / limit", "error before", "error", "best held KL weight", "its error")
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    errors_of = [one | {"error": one.get("others", one["error"])} for one in runs]
    for key in dict.fromkeys((one["network"], one["asked"]) for one in runs):
        chosen = [one for one in errors_of if (one["network"], one["asked"]) == key]
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
