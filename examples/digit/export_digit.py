"""Train a digit classifier briefly and write it as C, with a digit to classify.

python examples/digit/export_digit.py [--epochs 5] [--folder .] [--index 0]

Writes digit.c, digit.h and digit.pgm. Then:

cc -O2 -o digit examples/digit/main.c digit.c -I . -lm
./digit digit.pgm
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

import vbdrop
from vbdrop.data import digits
from vbdrop.models import build


def write_pgm(path: Path, image: Tensor) -> None:
    """Write an image in [0, 1] as a portable grey map, the simplest image format."""
    height, width = image.shape
    path.write_bytes(b"P5\n%d %d\n255\n" % (width, height) + image.mul(255).round().byte().numpy().tobytes())


def main(arguments: list[str] | None = None) -> int:
    """Write the files, and return the digit that the image shows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path())
    parser.add_argument("--index", type=int, default=0, help="index of the test digit to write")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    data = digits()

    model = build("lenet-300-100")
    vbdrop.convert_(model, vbdrop.Weights())
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=2e-3))
    elbo = vbdrop.ELBO(model, n_train=8_000, kl_weight=0.1, warmup=vbdrop.Warmup(ramp=args.epochs / 2))
    for epoch in range(args.epochs):
        elbo.epoch = epoch
        for batch in torch.randperm(8_000).split(100):
            loss = elbo(F.cross_entropy(model(data.train_images[batch]), data.train_labels[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    small = vbdrop.compress(model.eval(), data.test_images[:16])
    print(vbdrop.export(small, args.folder / "digit.c"))
    write_pgm(args.folder / "digit.pgm", data.test_images[args.index, 0])
    label = int(data.test_labels[args.index])
    print(f"digit.pgm shows a {label}")
    return label


if __name__ == "__main__":
    main()
