"""Shrink your own model, a small convolutional network, from the command line or with one call.

vbdrop shrink examples.shrink_own_model:make_model --data examples.shrink_own_model:loaders \
    --target macs=5 --epochs 12 --out small/
python examples/shrink_own_model.py [--target macs=5] [--epochs 12] [--images 8000] [--folder DIR]
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import vbdrop
from vbdrop.data import digits
from vbdrop.targets import ShrinkResult


def make_model() -> nn.Module:
    """Build the network, for images of 28 x 28; a trained one would load its checkpoint here."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 12, 5, stride=2), nn.ReLU(),
        nn.Conv2d(12, 24, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(24 * 5 * 5, 60), nn.ReLU(), nn.Linear(60, 10),
    )  # fmt: skip


def loaders(images: int = 8_000) -> tuple[DataLoader, DataLoader]:
    """Build the loaders of the training and validation data; the last 1,000 digits are for validation."""
    data = digits()
    train = TensorDataset(data.train_images[: images - 1000], data.train_labels[: images - 1000])
    valid = TensorDataset(data.train_images[-1000:], data.train_labels[-1000:])
    return DataLoader(train, batch_size=100, shuffle=True), DataLoader(valid, batch_size=500)


def main(arguments: list[str] | None = None) -> ShrinkResult:
    """Shrink the network in one call, print what happened, and return the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="macs=5", help="such as macs=5, weights=20 or 'max_bytes=20 kB'")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--images", type=int, default=8_000, help="how many of the 8,000 training digits to use")
    parser.add_argument("--folder", type=Path, help="folder for the files; by default nothing is kept")
    args = parser.parse_args(arguments)
    train, valid = loaders(args.images)
    result = vbdrop.shrink(
        make_model(), train, valid=valid, target=vbdrop.Target.parse(args.target), epochs=args.epochs, lr=2e-3,
        progress=True,
    )  # fmt: skip
    print(result)
    if args.folder is not None:
        print(f"small.safetensors: {result.save(args.folder / 'small.safetensors'):,} bytes")
        print(result.export(args.folder / "small.onnx"))
    return result


if __name__ == "__main__":
    main()
