"""A plain training loop, and the same loop with learned dropout rates: LeNet-300-100 on the embedded digits.

python examples/training_loop.py [--epochs 10] [--weight 0.1]
"""

import argparse
import time

import torch
import torch.nn.functional as F
from torch import nn

import vbdrop
from vbdrop.data import Digits, digits
from vbdrop.models import build


def error(model: nn.Module, data: Digits) -> float:
    """The share of wrong answers on the test digits."""
    model.eval()
    with torch.no_grad():
        return (model(data.test_images).argmax(1) != data.test_labels).float().mean().item()


def train(model: nn.Module, data: Digits, epochs: int, weight: float | None) -> None:
    """Train a model; with a KL weight, on the ELBO."""
    n_train = len(data.train_labels)
    groups = model.parameters() if weight is None else vbdrop.param_groups(model)
    optimizer = torch.optim.Adam(groups, lr=2e-3)
    elbo = None
    if weight is not None:
        elbo = vbdrop.ELBO(model, n_train=n_train, kl_weight=weight, warmup=vbdrop.Warmup(ramp=epochs / 2))
    for epoch in range(epochs):
        start = time.perf_counter()
        model.train()
        for batch in torch.randperm(n_train).split(100):
            loss = F.cross_entropy(model(data.train_images[batch]), data.train_labels[batch])
            if elbo is not None:
                elbo.epoch = epoch
                loss = elbo(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        line = f"  epoch {epoch + 1:2d}/{epochs}  test error {error(model, data):6.2%}"
        if elbo is not None:
            line += f"  dead weights {dead_share(model):6.2%}"
        print(f"{line}  {time.perf_counter() - start:4.1f} s", flush=True)


def dead_share(model: nn.Module) -> float:
    """The share of dead weights in the whole model."""
    rates = vbdrop.rates(model).values()
    return sum(rate.dead for rate in rates) / sum(rate.count for rate in rates)


def main(arguments: list[str] | None = None) -> tuple[nn.Module, nn.Module]:
    """Train both networks, print the comparison, and return them: the plain one, and the one with learned rates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--weight", type=float, default=0.1, help="weight of the KL; larger is sparser")
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    data = digits()

    print("The plain network")
    plain = build("lenet-300-100")
    train(plain, data, args.epochs, weight=None)

    print("The same network with a learned dropout rate for every weight")
    model = build("lenet-300-100")
    vbdrop.convert_(model, vbdrop.Weights())
    train(model, data, args.epochs, weight=args.weight)

    print(f"\n{vbdrop.rates(model)}\n")
    print(f"plain:  test error {error(plain, data):6.2%}")
    print(f"vbdrop: test error {error(model, data):6.2%}, {1 / (1 - dead_share(model)):.0f} times fewer weights")
    return plain, model


if __name__ == "__main__":
    main()
