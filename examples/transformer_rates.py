"""Learned dropout rates for a small transformer encoder: nothing is removed, and no rate is chosen by hand.

python examples/transformer_rates.py [--epochs 8] [--images 4000]

A digit is read as a sequence of its 28 rows. The linear layers of the encoder learn a rate for every input unit.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from vbdrop.data import digits


class RowReader(nn.Module):
    """An encoder over the rows of an image, and a linear classifier on the mean of its outputs."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(28, width)
        self.position = nn.Parameter(0.02 * torch.randn(28, width))
        layer = nn.TransformerEncoderLayer(width, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of a batch."""
        return self.head(self.encoder(self.embed(images.squeeze(1)) + self.position).mean(1))


def main(arguments: list[str] | None = None) -> nn.Module:
    """Train, print the rates and the network's uncertainty, and return it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--images", type=int, default=4_000, help="how many of the 8,000 training digits to use")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    data = digits()
    images, labels = data.train_images[: args.images], data.train_labels[: args.images]

    model = RowReader()
    print(vbdrop.convert_(model, vbdrop.Rates(per="unit", rate=0.1)))
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=3e-3, rate_lr=1e-2))
    elbo = vbdrop.ELBO(model, n_train=len(images), kl_weight=0.03)
    for epoch in range(args.epochs):
        model.train()
        for batch in torch.randperm(len(images)).split(50):
            loss = elbo(F.cross_entropy(model(images[batch]), labels[batch]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch + 1}: loss {elbo.terms.loss.item():.3f}, its KL part {elbo.terms.kl.item():,.0f}")

    print(vbdrop.rates(model))
    prediction = vbdrop.predict(model, data.test_images[:1000], samples=16)
    wrong = prediction.mean.argmax(1) != data.test_labels[:1000]
    print(f"test error {wrong.float().mean().item():.2%}")
    for kind, chosen in (("right", ~wrong), ("wrong", wrong)):
        if chosen.any():
            print(f"entropy where it is {kind}: {prediction.entropy[chosen].mean().item():.2f} nats")
    return model


if __name__ == "__main__":
    main()
