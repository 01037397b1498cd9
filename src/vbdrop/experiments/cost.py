"""Estimates the cost of runs from the time of a few steps measured on this machine."""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from vbdrop.compression.rewriting.memory_format import to_channels_last_
from vbdrop.experiments.config import Config
from vbdrop.experiments.execution import computing
from vbdrop.experiments.inputs import facts
from vbdrop.experiments.step_times import StepTimes
from vbdrop.exporting.latency import one_thread
from vbdrop.models import MODELS, build
from vbdrop.train import Batch, evaluate
from vbdrop.train.evaluation import BATCH as EVALUATED_AT_ONCE
from vbdrop.train.method import Method, Step

WARM_UP, STEPS, OUTLIERS = 2, 16, 2
ENOUGH = 0.5
"""After this many seconds no more steps are measured."""
SHRUNK = 0.6
"""The assumed share of the time that a run takes if units that have stayed dead are removed on the way: 48 recorded
runs on the LeNets took 0.31 to 0.97 of it, with a median of 0.53."""
_CLASSES = 10


class StepTimer:
    """Times the steps of a short run on random examples.

    Its steps are spread over the whole run, so that a method that trains, prunes and retrains does all of it.

    Args:
        config: The run.
        steps: The number of steps of the short run.
        clock: The clock.

    Example:
        >>> from vbdrop.experiments.config import resolve
        >>> from vbdrop.methods import METHODS
        >>> from vbdrop.train import Budget
        >>> config = resolve(METHODS["plain"](), model="lenet-5", data="mnist", checksum="", budget=Budget(batch=10))
        >>> 0 < StepTimer(config).step() < 10
        True
    """

    def __init__(
        self, config: Config, steps: int = WARM_UP + STEPS, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.budget = budget = config.budget
        self.clock = clock
        self.steps, self.epochs = steps, budget.epochs
        self.method: Method = config.build_method()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.model = self.method.build(build(config.model, **config.model_args)).train()
            to_channels_last_(self.model)  # as a run does
        self.shape = MODELS[config.model].input_shape
        self.random = torch.Generator().manual_seed(0)
        self.optimizer = torch.optim.Adam(self.method.groups(self.model, budget.lr), lr=budget.lr, fused=True)
        self.index = 0

    def step(self) -> float:
        """Do a step and return its seconds."""
        with torch.random.fork_rng(devices=[]):
            batch = self._random_batch()
            start = self.clock()
            done = self.index / self.steps
            at = Step(self.index, self.steps, done * self.epochs, self.epochs, n_train=60_000)
            loss = self.method.loss(self.model, batch, at)
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            self.method.after_step(self.model, at)
            self.index = min(self.index + 1, self.steps - 1)
            return self.clock() - start

    def evaluation(self) -> float:
        """Evaluate a batch of examples and return the seconds per example."""
        examples = Batch(torch.zeros(EVALUATED_AT_ONCE, *self.shape), torch.zeros(EVALUATED_AT_ONCE, dtype=torch.long))
        start = self.clock()
        evaluate(self.model, examples)
        return (self.clock() - start) / EVALUATED_AT_ONCE

    def _random_batch(self) -> Batch:
        """A batch of new examples; one that was learned by heart would have subnormal gradients, which are slow."""
        count = self.budget.batch
        inputs = torch.rand(count, *self.shape, generator=self.random)
        return Batch(inputs, torch.randint(_CLASSES, (count,), generator=self.random))


class Costs:
    """The expected cost of runs, each in its own process: core-seconds, from their start.

    Other load on the machine does not count. Runs that differ only in seed, epochs or numeric hyper-parameters share
    one measurement, made on first use.

    Args:
        data_dir: The folder of the data.
        times: Where measurements are kept for later; by default they are not.
    """

    def __init__(self, data_dir: Path | None = None, times: StepTimes | None = None) -> None:
        self.data_dir = data_dir
        self.times = times or StepTimes(None)

    def __call__(self, config: Config) -> float:
        """Return the seconds of a run."""
        return _cost(config, *self.times.get(config, lambda: _measured(config)), self.data_dir)


def _measured(config: Config) -> tuple[float, float]:
    """The seconds of a step, and of the evaluation of one example."""
    with one_thread(), computing(config.arithmetic):
        timer = StepTimer(config, clock=time.process_time)
        times = sorted(_steps(timer))
        return statistics.fmean(times[:-OUTLIERS]), timer.evaluation()


def _steps(timer: StepTimer) -> list[float]:
    """The seconds of this many steps, or of fewer if they are slow."""
    times = [timer.step() for _ in range(WARM_UP)][WARM_UP:]
    while len(times) < STEPS and (len(times) <= OUTLIERS or math.fsum(times) < ENOUGH):
        times.append(timer.step())
    return times


def estimate(runs: Sequence[Config], data_dir: Path | None = None, times: StepTimes | None = None) -> list[float]:
    """Return the expected seconds of each run: see :class:`Costs`.

    Args:
        runs: The runs, from their start.
        data_dir: The folder of the data.
        times: Where measurements are kept for later; by default they are not.
    """
    return list(map(Costs(data_dir, times), runs))


def _cost(config: Config, step: float, evaluation: float, data_dir: Path | None) -> float:
    known = facts(config.data, data_dir)
    train = config.n_train or known.train - config.n_valid
    test = config.n_valid or known.test
    epochs = config.budget.epochs
    steps = epochs * math.ceil(train / config.budget.batch)
    whole = 1.0 if config.budget.shrink_every is None else SHRUNK
    return whole * steps * step + math.ceil(epochs / config.budget.evaluate_every) * test * evaluation
