"""One network, one seed, the same batches, and one noise tensor per example, for every trainer."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset

import vbdrop

STEPS, BATCH, CLASSES = 20, 8, 3
EXAMPLES = STEPS * BATCH
LR = 0.01


class PerExampleNoise(nn.Module):
    """A small network that draws the noise of every example from a seed of the example's own.

    The noise is then the same in whichever batch the example comes, and however much the trainer draws in between.
    """

    def __init__(self, *modes: object) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            self.net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, CLASSES))
        if modes:
            vbdrop.convert_(self, *modes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits; the first column of ``x`` is the number of the example."""
        rows = []
        with torch.random.fork_rng(devices=[]):
            for row in x:
                torch.manual_seed(int(row[0]))
                rows.append(self.net(row[None, 1:]))
        return torch.cat(rows)


def examples() -> tuple[Tensor, Tensor]:
    """Inputs, the first column the number of the example, and classes."""
    generator = torch.Generator().manual_seed(5)
    features = torch.randn(EXAMPLES, 6, generator=generator)
    numbers = torch.arange(EXAMPLES, dtype=torch.float32)[:, None]
    return torch.cat([numbers, features], 1), (features[:, 0] > 0).long() + (features[:, 1] > 0).long()


class Examples(Dataset):
    """The examples as (x, y), or as the dict that the trainer of transformers wants."""

    def __init__(self, as_dict: bool = False) -> None:
        self.x, self.y = examples()
        self.as_dict = as_dict

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> object:
        x, y = self.x[index], self.y[index]
        return {"x": x, "labels": y} if self.as_dict else (x, y)


def optimizer_of(groups: object) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=LR, weight_decay=0.0)


def trained(mode: object, step: Callable[[nn.Module], Callable[[Tensor, Tensor], None]]) -> dict[str, Tensor]:
    """The parameters after a loop of one's own, whose step is made for the converted model."""
    model = PerExampleNoise(mode).train()
    do = step(model)
    for x, y in zip(*(part.split(BATCH) for part in examples()), strict=True):
        do(x, y)
    return parameters_of(model)


def by_own_loop(mode: object) -> dict[str, Tensor]:
    """The loss is ``elbo(nll)``."""

    def step(model: nn.Module) -> Callable[[Tensor, Tensor], None]:
        elbo, optimizer = vbdrop.ELBO(model, n_train=EXAMPLES), optimizer_of(vbdrop.param_groups(model))

        def do(x: Tensor, y: Tensor) -> None:
            optimizer.zero_grad()
            elbo(F.cross_entropy(model(x), y)).backward()
            optimizer.step()

        return do

    return trained(mode, step)


def by_attach(mode: object) -> dict[str, Tensor]:
    """The loss is the negative log likelihood, and the KL is attached."""

    def step(model: nn.Module) -> Callable[[Tensor, Tensor], None]:
        optimizer = optimizer_of(vbdrop.param_groups(model))
        vbdrop.ELBO(model, n_train=EXAMPLES).attach(optimizer)

        def do(x: Tensor, y: Tensor) -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()

        return do

    return trained(mode, step)


def parameters_of(model: nn.Module) -> dict[str, Tensor]:
    """Copies of the parameters, by the names that they have in the network itself."""
    return {name[name.rindex("net.") :]: p.detach().clone() for name, p in model.named_parameters()}


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Between the parameters of two trainings."""
    assert one.keys() == other.keys()
    return max((one[name] - other[name]).abs().max().item() for name in one)


MODES = {"weights": vbdrop.Weights(), "units": vbdrop.Units(), "rates": vbdrop.Rates()}
