"""The training loop that all methods share, so that two runs differ only in their methods."""

import copy
import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from vbdrop.compression.rewriting.memory_format import to_channels_last_
from vbdrop.kernels import in_use
from vbdrop.layers import NoisyLayer
from vbdrop.objective import kl, noisy_tensors
from vbdrop.objective.checks import DeadLayerWatch
from vbdrop.objective.weight_reads import check_weight_reads
from vbdrop.train import checkpoint
from vbdrop.train.budget import Budget
from vbdrop.train.evaluation import Evaluation, evaluate
from vbdrop.train.method import Batch, Method, Step
from vbdrop.train.metrics import Epoch, MetricsLog
from vbdrop.train.order import batches
from vbdrop.train.schedules import schedule
from vbdrop.train.shrinking import Shrinking, check_shrinks
from vbdrop.train.sparsity import sparsity

METRICS_FILE = "metrics.jsonl"
CHECKPOINT_SECONDS = 15.0
"""The least time between checkpoints: a killed run loses at most this much work plus an unfinished epoch."""

Report = Callable[[int, int, Epoch | None], None]
"""Called after every step with the steps done, the total and, at the end of an epoch, its figures."""


class DivergedError(Exception):
    """The loss of a run became infinite or NaN.

    Attributes:
        epoch: The epoch in which it happened, counted from 1.

    Example:
        >>> raise DivergedError(3)
        Traceback (most recent call last):
        vbdrop.train.loop.DivergedError: the loss is not finite in epoch 3
    """

    def __init__(self, epoch: int) -> None:
        super().__init__(f"the loss is not finite in epoch {epoch}")
        self.epoch = epoch


@dataclass(frozen=True)
class Trained:
    """The result of a run.

    Attributes:
        model: The model as trained, with noise and masks; units that were removed during training are restored, dead.
        network: The plain network that the method makes from it.
        last: The figures of the last epoch; its evaluation is that of ``network``.
    """

    model: nn.Module
    network: nn.Module
    last: Epoch

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the network after the last epoch, the only one that counts."""
        if self.last.evaluation is None:
            raise TypeError("the last epoch is always evaluated.")
        return self.last.evaluation


def _silent(done: int, steps: int, epoch: Epoch | None) -> None:
    """Report nothing."""


def fit(
    method: Method,
    model: nn.Module,
    train: Batch,
    test: Batch,
    budget: Budget,
    *,
    folder: Path | None = None,
    report: Report = _silent,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> Trained:
    """Train a network with a method.

    With a folder, the run can be killed at any time: called again, it resumes from its last checkpoint and ends with
    the same bits, on the same machine with the same number of threads. Torch's random state is restored.

    Args:
        method: The training method.
        model: The plain network, freshly initialised; it is changed.
        train: All training examples.
        test: The examples to evaluate on: a validation split, or the test data.
        budget: Epochs, batch, learning rate, schedule and seed.
        folder: An existing folder for ``metrics.jsonl`` and the checkpoint; None to keep nothing.
        report: Called after every step.
        checkpoint_seconds: The least time between two checkpoints.

    Raises:
        DivergedError: The loss is no longer finite.
        RecordError: The folder's files are damaged, or belong to another run.

    Example:
        >>> from vbdrop.train.method import Batch
        >>> class Plain(Method):
        ...     def loss(self, model, batch, step):
        ...         return nn.functional.cross_entropy(model(batch.inputs), batch.targets)
        >>> inputs = torch.randn(64, 2)
        >>> examples = Batch(inputs, (inputs.sum(1) > 0).long())
        >>> trained = fit(Plain(), nn.Linear(2, 2), examples, examples, Budget(epochs=20, batch=8, lr=0.1))
        >>> trained.evaluation.error < 10
        True
    """
    if len(train.targets) == 0:
        raise ValueError("`train` must hold at least one example; got none.")
    check_shrinks(method, budget.shrink_every)
    with torch.random.fork_rng(devices=[]), ExitStack() as stack:
        torch.manual_seed(budget.noise_seed)
        run = _Run(method, method.build(model), train, test, budget)
        log = run.resume(folder, stack) if folder is not None else None
        saved = time.monotonic()
        while True:
            figures = run.epoch(report)
            if dead := run.dead_layers.news():
                warnings.warn(f"{dead} Give the method's penalty less weight, or let it come in later.", stacklevel=2)
            if log is not None:
                log.append(figures)
            report(run.steps_done, run.steps, figures)
            if run.epochs_done == budget.epochs:
                model = run.whole()
                return Trained(model, run.finished(model), figures)
            if log is not None and folder is not None and time.monotonic() - saved >= checkpoint_seconds:
                run.save(folder, log)
                saved = time.monotonic()


class _Run:
    """A run in progress; its state changes by whole epochs."""

    def __init__(self, method: Method, model: nn.Module, train: Batch, test: Batch, budget: Budget) -> None:
        self.method, self.train, self.test, self.budget = method, train, test, budget
        to_channels_last_(model)
        self.model = model  # on a CPU, convolutions and pooling train a third faster in channels-last order
        self.optimizer = torch.optim.Adam(method.groups(model, budget.lr), lr=budget.lr, fused=True)
        self.base_lrs = [group["lr"] for group in self.optimizer.param_groups]
        self.factor = schedule(budget.schedule)
        self.steps_an_epoch = math.ceil(len(train.targets) / budget.batch)
        self.steps = self.steps_an_epoch * budget.epochs
        self.epochs_done = 0
        self.identity = self._identity()
        self.shrinking = None if budget.shrink_every is None else Shrinking(method, model, train.inputs)
        self.dead_layers = DeadLayerWatch(model)
        if any(isinstance(module, NoisyLayer) for module in model.modules()):
            check_weight_reads(model, (train.inputs[:2],))

    @property
    def steps_done(self) -> int:
        return self.epochs_done * self.steps_an_epoch

    # an epoch

    def epoch(self, report: Report) -> Epoch:
        start = time.monotonic()
        self._shrink()
        self.model.train()
        total = torch.zeros((), dtype=torch.float64)
        lr = 1.0
        order = batches(self.train, self.budget.batch, self.budget.seed, self.epochs_done)
        for index, batch in enumerate(order, start=self.steps_done):
            step = Step(index, self.steps, index / self.steps_an_epoch, self.budget.epochs, len(self.train.targets))
            lr = self.factor(step.progress)
            total += self._step(batch, step, lr) * len(batch.targets)
            if index + 1 < self.steps_done + self.steps_an_epoch:
                report(index + 1, self.steps, None)
        self.epochs_done += 1
        loss = total.item() / len(self.train.targets)
        if not math.isfinite(loss):
            raise DivergedError(self.epochs_done)
        try:
            return self._figures(loss, lr, time.monotonic() - start)
        except FloatingPointError as error:  # caused by the last step
            raise DivergedError(self.epochs_done) from error

    def _step(self, batch: Batch, step: Step, lr: float) -> torch.Tensor:
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base * lr
        self.optimizer.zero_grad()
        try:
            loss = self.method.loss(self.model, batch, step)
        except FloatingPointError as error:
            raise DivergedError(self.epochs_done + 1) from error
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.method.after_step(self.model, step)
        return loss.detach()

    def _figures(self, loss: float, lr: float, seconds: float) -> Epoch:
        divergence = kl(self.model).item() if next(noisy_tensors(self.model), None) is not None else None
        evaluation = weights = None
        if self.epochs_done % self.budget.evaluate_every == 0 or self.epochs_done == self.budget.epochs:
            last = self.epochs_done == self.budget.epochs
            network = self.finished(self.whole() if last else self.model)
            evaluation, weights = (
                evaluate(network, self.test),
                sparsity(network, None if self.shrinking is None else self.shrinking.weights),
            )
        for figure in (divergence, None if evaluation is None else evaluation.nll):
            if figure is not None and not math.isfinite(figure):
                raise FloatingPointError(f"a figure of the network is {figure}.")
        return Epoch(self.epochs_done, loss, lr, seconds, divergence, evaluation, weights)

    def finished(self, model: nn.Module) -> nn.Module:
        """The network that the method would make from the model now; the model itself is not changed."""
        with torch.random.fork_rng(devices=[]):
            return self.method.finish(copy.deepcopy(model)).eval()

    # a model that becomes smaller

    def _shrink(self) -> None:
        """Remove the units that have stayed dead, if a check is due."""
        every = self.budget.shrink_every
        if self.shrinking is not None and every is not None and self.epochs_done and self.epochs_done % every == 0:
            self.shrinking.check_(self.model, self.optimizer)

    def whole(self) -> nn.Module:
        """The model in its original shape."""
        return self.model if self.shrinking is None else self.shrinking.whole(self.model)

    # a killed run

    def _identity(self) -> str:
        """Identifies this run, apart from the data."""
        method = {"name": type(self.method).__qualname__, "version": self.method.version, **self.method.identity()}
        shapes = {name: list(value.shape) for name, value in self.model.state_dict().items()}
        facts = [method, self.budget.as_dict(), shapes, len(self.train.targets)]
        return hashlib.sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def resume(self, folder: Path, stack: ExitStack) -> MetricsLog:
        state = checkpoint.load(folder, self.identity)
        if state is None:
            return stack.enter_context(MetricsLog(folder / METRICS_FILE))
        checkpoint.warn_if_other_arithmetic(state, in_use())
        if self.shrinking is not None and state.shrunk is not None:
            self.shrinking.load_(state.shrunk, self.model, self.optimizer)
        self.model.load_state_dict(state.model)
        self.optimizer.load_state_dict(state.optimizer)
        torch.set_rng_state(state.rng)
        self.epochs_done = state.epoch
        return stack.enter_context(MetricsLog(folder / METRICS_FILE, state.metrics_bytes))

    def save(self, folder: Path, log: MetricsLog) -> None:
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        size, rng = log.saved_bytes(), torch.get_rng_state()
        shrunk = None if self.shrinking is None else self.shrinking.shrunk.as_data()
        state = checkpoint.Checkpoint(self.identity, self.epochs_done, model, optimizer, rng, size, shrunk, in_use())
        checkpoint.save(folder, state)
