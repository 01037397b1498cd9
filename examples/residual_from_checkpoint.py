"""Fine-tune a residual network from a checkpoint with learned noise, compress it, and save it as small files.

python examples/residual_from_checkpoint.py [--epochs 6] [--images 8000] [--folder DIR]

The first part trains the network plainly and saves it, so that there is a checkpoint to start from.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from vbdrop.compression import Compressed
from vbdrop.data import digits


class Block(nn.Module):
    """Two convolutions with batch normalisation, and a skip connection around them."""

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


def train(model: nn.Module, optimizer: torch.optim.Optimizer, epochs: int, data: tuple[Tensor, Tensor]) -> None:
    """Train a plain network."""
    images, labels = data
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(100):
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def fine_tune(model: nn.Module, epochs: int, data: tuple[Tensor, Tensor]) -> None:
    """Learn which channels are needed: the same loop, with the ELBO as its loss."""
    images, labels = data
    print(vbdrop.convert_(model, vbdrop.Units()))
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=2e-3, rate_lr=0.1))  # gates move slowly otherwise
    elbo = vbdrop.ELBO(model, n_train=len(images), kl_weight=20.0, warmup=vbdrop.Warmup(ramp=epochs / 2))
    for epoch in range(epochs):
        elbo.epoch = epoch
        model.train()
        for batch in torch.randperm(len(images)).split(100):
            loss = elbo(F.cross_entropy(model(images[batch]), labels[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    vbdrop.recalibrate_(model, images.split(500))  # BatchNorm has seen the noise


@torch.no_grad()
def error(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """The share of wrong answers."""
    return (model.eval()(images).argmax(1) != labels).float().mean().item()


def main(arguments: list[str] | None = None) -> Compressed:
    """Run all steps, print what happens, and return the small network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=8_000, help="how many of the 8,000 training digits to use")
    parser.add_argument("--folder", type=Path, help="folder for the files; by default nothing is kept")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    data = digits()
    training, test = (data.train_images[: args.images], data.train_labels[: args.images]), data.test_images
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)

        model = ResNet()
        train(model, torch.optim.Adam(model.parameters(), lr=2e-3), args.epochs, training)
        torch.save(model.state_dict(), folder / "checkpoint.pt")
        print(f"the checkpoint: test error {error(model, test, data.test_labels):.2%}")

        model = ResNet()
        model.load_state_dict(torch.load(folder / "checkpoint.pt", weights_only=True))
        fine_tune(model, args.epochs, training)
        print(vbdrop.rates(model))

        small = vbdrop.compress(model, test[:64])
        print(small.summary())
        before, after = error(model, test, data.test_labels), error(small.model, test, data.test_labels)
        print(f"test error {before:.2%} tuned, {after:.2%} compressed")

        size = small.save(folder / "small.safetensors")
        loaded = vbdrop.load(folder / "small.safetensors", model=ResNet())
        same = torch.equal(loaded(test[:64]), small.model(test[:64]))
        print(f"small.safetensors: {size:,} bytes; loaded again, the outputs are {'the same' if same else 'different'}")
        print(vbdrop.export(small, folder / "small.onnx"))
    return small


if __name__ == "__main__":
    main()
