"""The cost of a training step against the plain network's: forward, loss with its KL, backward and optimizer.

    python -m benchmarks.step [--threads 2] [--batch 128] [--rounds 40]

Every mode runs on its own copy of the same network, with fused Adam, nothing dead, interleaved in one process.
"""

import argparse
import copy
import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from benchmarks.timing import interleaved, ratio
from vbdrop.layers import Variational
from vbdrop.models import build

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "784-300-100-10": lambda: build("lenet-300-100"),
    "3x1060": lambda: build("mlp", units=1060),
    "LeNet-5": lambda: build("lenet-5"),
}
MODES = {"Weights": vbdrop.Weights(), "Units": vbdrop.Units(), "Rates": vbdrop.Rates(per="unit")}


def training_step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """A function that does one whole step; the objective has its KL if the model is converted."""
    is_plain = not any(isinstance(module, Variational) for module in model.modules())
    groups = model.parameters() if is_plain else vbdrop.param_groups(model)
    optimizer = torch.optim.Adam(groups, lr=1e-6, fused=True)
    elbo = None if is_plain else vbdrop.ELBO(model, n_train=60_000)

    def step() -> None:
        nll = F.cross_entropy(model(images), labels)
        loss = nll if elbo is None else elbo(nll)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def compare(network: str, batch: int, rounds: int) -> dict[str, float]:
    """Prints one line a mode; returns mode -> ratio to plain."""
    plain = NETWORKS[network]()
    images, labels = torch.rand(batch, 1, 28, 28), torch.randint(10, (batch,))
    cases = {"plain": training_step(plain, images, labels)}
    for name, mode in MODES.items():
        model = copy.deepcopy(plain)
        vbdrop.convert_(model, mode)
        cases[name] = training_step(model, images, labels)
    seconds = interleaved(cases, rounds)
    ratios = {name: ratio(seconds, name, "plain") for name in MODES}
    print(f"{network:<16} plain   {1e3 * statistics.median(seconds['plain']):8.2f} ms")
    for name, value in ratios.items():
        print(f"{'':<16} {name:<8}{1e3 * statistics.median(seconds[name]):8.2f} ms   {value:5.2f} x plain")
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="one of them; all if left out")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads, batch {args.batch}, {args.rounds} rounds")
    for network in args.network or NETWORKS:
        compare(network, args.batch, args.rounds)


if __name__ == "__main__":
    main()
