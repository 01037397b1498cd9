"""What the tests of the methods share: a small task of real digits, and a short training on it."""

from collections.abc import Callable

import pytest
import torch
from tests.trained import chosen_seed
from torch import nn

from vbdrop.data import digits
from vbdrop.models import MLP, LeNet5
from vbdrop.train.method import Batch, Method, Step

SIZE = 1_500
"""Training digits; few enough for a second of training, enough to get most test digits right."""


class Task:
    """Digits at half their width and height, and a small network for them."""

    def __init__(self) -> None:
        data = digits()
        every = len(data.train_labels) // SIZE
        half = nn.AvgPool2d(2)
        self.train = Batch(half(data.train_images[::every]), data.train_labels[::every])
        self.test = Batch(half(data.test_images[::4]), data.test_labels[::4])

    def network(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return MLP([32, 24], inputs=196)

    def convolutional(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return LeNet5()

    def error(self, model: nn.Module) -> float:
        """The test error in eval mode, in percent."""
        model.eval()
        with torch.no_grad():
            wrong = model(self.test.inputs).argmax(1) != self.test.targets
        return 100 * wrong.float().mean().item()

    def fit(
        self,
        method: Method,
        *,
        epochs: int = 20,
        batch: int = 50,
        lr: float = 5e-3,
        seed: int = 0,
        watch: Callable[[nn.Module, Step], None] | None = None,
    ) -> nn.Module:
        """Train the small network; ``watch`` sees the model after every step. Returns the model, not finished."""
        model = method.build(self.network(seed))
        optimizer = torch.optim.Adam(method.groups(model, lr))
        rates = [group["lr"] for group in optimizer.param_groups]
        count = len(self.train.targets)
        a_epoch = count // batch
        steps = epochs * a_epoch
        first = seed + 1000 * chosen_seed()
        for index in range(steps):
            if index % a_epoch == 0:
                order = torch.randperm(count, generator=torch.Generator().manual_seed(first + index))
            step = Step(index, steps, index / a_epoch, epochs, count)
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate * min(1.0, 2 - 2 * step.progress)
            chosen = order[index % a_epoch * batch :][:batch]
            model.train()
            loss = method.loss(model, Batch(self.train.inputs[chosen], self.train.targets[chosen]), step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            method.after_step(model, step)
            if watch is not None:
                watch(model, step)
        return model


@pytest.fixture(scope="session")
def task() -> Task:
    return Task()


@pytest.fixture
def a_step() -> Step:
    """The middle of a run of 100 steps over 1,000 examples."""
    return Step(index=50, steps=100, epoch=5.0, epochs=10, n_train=1_000)
