"""Measure a LeNet-300-100 with about 80 times fewer weights: file sizes, and latency in every runtime, in one run.

    python -m benchmarks.inference [--mnist FOLDER] [--epochs 30] [--rounds 100]

Trains on the digits that come with the package (a minute or two), or on all of MNIST in FOLDER (the four IDX files).
The network is sparse in single weights; inputs and units that lose all of their weights are removed.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from vbdrop import data
from vbdrop.compression import compress, load
from vbdrop.exporting import export, measure
from vbdrop.models import build

DENSE_BYTES = 1_066_440
"""266,610 weights and biases in float32."""

WEIGHTS = 266_200


def train(images: Tensor, labels: Tensor, epochs: int, kl_weight: float) -> nn.Module:
    """The recipe of sparse variational dropout: a warm-up of the KL, then a learning rate that falls to zero."""
    model = build("lenet-300-100")
    vbdrop.convert_(model, vbdrop.Weights())
    optimizer = torch.optim.Adam(vbdrop.param_groups(model), lr=1e-3, fused=True)
    warmup = vbdrop.Warmup(hold=0.025 * epochs, ramp=0.075 * epochs)
    elbo = vbdrop.ELBO(model, n_train=len(images), kl_weight=kl_weight, warmup=warmup)
    steps = len(images) // 100
    for step in range(epochs * steps):
        if step % steps == 0:
            order = torch.randperm(len(images))
        elbo.epoch = step / steps
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, 2 - 2 * step / (epochs * steps))
        batch = order[step % steps * 100 :][:100]
        loss = elbo(F.cross_entropy(model(images[batch]), labels[batch]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def error(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of wrong answers, in percent."""
    return 100 * (model(images).argmax(1) != labels).double().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path, help="a folder with the four IDX files; by default the embedded digits")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--kl-weight", type=float, help="1 for MNIST and 0.3 for the digits, which are fewer")
    parser.add_argument("--rounds", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = data.load("digits") if args.mnist is None else data.load("mnist", args.mnist)
    images, labels = found.test_images / 255, found.test_labels
    kl_weight = args.kl_weight or (0.3 if args.mnist is None else 1.0)
    print(f"torch {torch.__version__}; {found.name}, {args.epochs} epochs, KL weight {kl_weight}")
    model = train(found.train_images / 255, found.train_labels, args.epochs, kl_weight)
    small = compress(model, images[:64])
    print(small.summary(), end="\n\n")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {dtype: small.save(folder / f"{dtype}.safetensors", dtype=dtype) for dtype in ("float32", "float16")}
        left = sum(int(value.count_nonzero()) for key, value in small.model.state_dict().items() if "weight" in key)
        print(f"{WEIGHTS / left:.1f} times fewer weights; test error {error(small.model, images, labels):.2f} %")
        for dtype, size in files.items():
            loaded = load(folder / f"{dtype}.safetensors")
            wrong = error(loaded, images, labels)
            print(f"{dtype}: {size:,} bytes, {DENSE_BYTES / size:.1f} times smaller, test error {wrong:.2f} %")
        exports = [export(small, folder / f"lenet{ending}") for ending in (".onnx", ".pt2", ".c")]
        print("\n".join(map(str, exports)), end="\n\n")
        measured = measure(model, small, exports, rounds=args.rounds)
    print(measured, end="\n\n")
    onnx = [measured.faster("small, ONNX Runtime", batch, than="original, ONNX Runtime") for batch in (1, 64)]
    print(f"C at batch 1: {measured.faster('small, C', 1):.1f} times faster than the original in PyTorch")
    print(f"ONNX: {onnx[0]:.1f} times faster than the original ONNX at batch 1, {onnx[1]:.1f} times at batch 64")


if __name__ == "__main__":
    main()
