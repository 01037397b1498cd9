"""Compare the latency of a small residual network with one from Torch-Pruning, at equal multiply-adds.

    python -m benchmarks.torch_pruning [--share 0.35] [--epochs 2] [--images 2000] [--rounds 100] [--models FOLDER]

A ResNet-20 (three stages of three blocks, 16, 32 and 64 channels) learns the digits with one gate for each channel
group. Torch-Pruning prunes the trained weights (L2 norm, the same share of all layers) to a share of the multiply-adds,
and vbdrop compresses the network to as many. Both run in PyTorch on one thread, in turn, with one image and 64 at a
time. The benchmark also prints the remaining channels of each stage, and how often the small model selects channels.
"""

import argparse
import copy
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from benchmarks.peers import install
from benchmarks.timing import ratio
from vbdrop.analysis.graph import trace
from vbdrop.analysis.weight_uses import positions
from vbdrop.cache import cache_dir
from vbdrop.data import digits
from vbdrop.exporting.latency import interleaved, one_thread

REQUIREMENT = "torch-pruning==1.6.1"

WIDTHS, BLOCKS = (16, 32, 64), 3

BATCHES = (1, 64)

TRIALS = 8
"""The bisection steps for the share that Torch-Pruning removes, to match the multiply-adds."""


class Block(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        self.shortcut: nn.Module = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The block."""
        inner = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.shortcut(x) + self.norm2(self.conv2(inner)))


class ResNet20(nn.Module):
    """The residual network of He et al. for small images, adapted to digits."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, WIDTHS[0], 3, 1, 1, bias=False), nn.BatchNorm2d(WIDTHS[0])
        before = (WIDTHS[0], *WIDTHS)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(
                    Block(before[i], width, 1 + (i > 0)), *(Block(width, width, 1) for _ in range(BLOCKS - 1))
                )
                for i, width in enumerate(WIDTHS)
            )
        )
        self.head = nn.Linear(WIDTHS[-1], 10)

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        x = self.stages(F.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


def macs(model: nn.Module, images: Tensor) -> int:
    """The multiply-adds of a plain model for one image."""
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    uses = positions(trace(copy.deepcopy(model).eval(), (images,)))
    return sum(count * sizes[name] for name, count in uses.items())


def trained(images: Tensor, labels: Tensor, epochs: int, kl_weight: float) -> nn.Module:
    """The network with one gate for each channel group, trained on digits."""
    model = ResNet20()
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=images[:2])
    elbo = vbdrop.ELBO(model, n_train=len(images), kl_weight=kl_weight)
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, weight_decay=0.0, rate_lr=1e-2), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(images)).split(64):
            optimizer.zero_grad()
            elbo(F.cross_entropy(model(images[rows]), labels[rows])).backward()
            optimizer.step()
    return model.eval()


def pruned(model: nn.Module, images: Tensor, goal: int, pruning: Any) -> nn.Module:  # noqa: ANN401 -- the package
    """A copy pruned by Torch-Pruning, with multiply-adds as close to the goal as possible."""
    low, high = 0.0, 1.0
    trials: dict[int, nn.Module] = {}
    for _ in range(TRIALS):
        share = (low + high) / 2
        trial = copy.deepcopy(model)
        importance = pruning.importance.MagnitudeImportance(p=2)
        options = {"importance": importance, "pruning_ratio": share, "ignored_layers": [trial.head]}
        pruning.pruner.MagnitudePruner(trial, images[:1], **options).step()
        count = macs(trial, images)
        trials[abs(count - goal)] = trial
        low, high = (share, high) if count > goal else (low, share)
    return trials[min(trials)]


def channels(model: nn.Module) -> dict[str, list[int]]:
    """For each stage, the channels of its stream, and those inside each of its blocks."""
    stages = {}
    for number, stage in enumerate(model.get_submodule("stages").children()):
        blocks = list(stage.children())
        width = blocks[0].get_submodule("conv2").out_channels
        stages[f"stage {number + 1}"] = [width, *(block.get_submodule("conv1").out_channels for block in blocks)]
    return stages


def selections(model: nn.Module, images: Tensor) -> int:
    """How often a model selects channels in its forward."""
    graph = trace(copy.deepcopy(model).eval(), (images,)).graph
    return sum("index" in str(node.target) for node in graph.nodes if node.op == "call_function")


def timed(models: dict[str, nn.Module], images: Tensor, rounds: int) -> dict[int, dict[str, list[float]]]:
    """Batch -> model -> seconds of each round."""
    with one_thread(), torch.inference_mode():
        return {
            batch: interleaved(
                {name: lambda _, model=model, batch=batch: model(images[:batch]) for name, model in models.items()},
                rounds,
            )
            for batch in BATCHES
        }


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=0.35, help="the share of the multiply-adds to keep")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=2000, help="how many digits to train on")
    parser.add_argument("--kl-weight", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--models", type=Path, help="a folder in which models are kept; if it has them, they are timed")
    parser.add_argument("--cache", type=Path, default=cache_dir("benchmarks"), help="where Torch-Pruning is kept")
    args = parser.parse_args(arguments)
    models = _kept(args.models) or _made(args)
    images = digits().test_images[: max(BATCHES)]
    result: dict[str, Any] = {}
    for name, model in models.items():
        result[name] = {"macs": macs(model, images[:2]), "selections": selections(model, images[:2])} | channels(model)
    formats = {
        f"{name}, channels last": copy.deepcopy(m).to(memory_format=torch.channels_last) for name, m in models.items()
    }
    for batch, seconds in timed(models | formats, images, args.rounds).items():
        for name, values in seconds.items():
            row = result.setdefault(name, {})
            row[f"batch {batch}, ms"] = 1e3 * statistics.median(values)
            row[f"batch {batch}, against Torch-Pruning"] = ratio(seconds, name, "Torch-Pruning")
    for name, row in result.items():
        print(name, json.dumps(row))
    return result


def _made(args: argparse.Namespace) -> dict[str, nn.Module]:
    """The original, the small model and the pruned one."""
    torch.manual_seed(args.seed)
    data = digits()
    images = data.train_images[: args.images]
    model = trained(images, data.train_labels[: args.images], args.epochs, args.kl_weight)
    plain = vbdrop.deterministic_(copy.deepcopy(model), threshold=float("inf"))
    sys.path.append(str(install({REQUIREMENT}, args.cache)))
    import torch_pruning

    other = pruned(plain, images[:2], int(args.share * macs(plain, images[:2])), torch_pruning)
    small = vbdrop.compress(model, images[:2], max_macs=macs(other, images[:2]), recalibrate=False)
    print(small.summary())
    models = {"original": plain, "vbdrop": small.model, "Torch-Pruning": other}
    if args.models:
        args.models.mkdir(parents=True, exist_ok=True)
        torch.save(models, args.models / "models.pt")
    return models


def _kept(folder: Path | None) -> dict[str, nn.Module]:
    """The models kept in a folder, if any."""
    path = folder / "models.pt" if folder else None
    return torch.load(path, weights_only=False) if path and path.exists() else {}


if __name__ == "__main__":
    main()
