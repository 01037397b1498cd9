"""Measure training steps in a separate process: the time of several variants in turn, or the memory of one.

    python -m benchmarks.worker '{"network": "3x1060", "batch": 128, "threads": 1, "variants": ["plain"], "rounds": 20}'

Prints one line of JSON; see `measure`. A separate process has nothing in its memory but what is measured, and cannot
take the rest of a benchmark down with it.
"""

import argparse
import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import vbdrop
from benchmarks.networks import examples, network
from benchmarks.timing import ratio
from benchmarks.variants import VARIANTS, Objective
from vbdrop.exporting.latency import interleaved

ROOT = Path(__file__).resolve().parent.parent

STEPS_FOR_MEMORY = 4

LONGEST = 3600
"""The time limit of one process, in seconds."""


COMPILED = ", compiled"
"""The suffix of a variant whose forward, loss and backward run through `torch.compile`."""

ATTACHED = ", attached"
"""The suffix of a variant of vbdrop that adds the KL's gradient before the optimizer's step, not through the loss."""


def training_step(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    objective: Objective,
    compiled: bool = False,
    attached: bool = False,
) -> Callable[[int], None]:
    """One whole step, as `interleaved` calls it: forward, loss, backward and fused Adam."""

    def loss_of(images: Tensor, labels: Tensor) -> Tensor:
        nll = F.cross_entropy(model(images), labels)
        return nll if attached else objective(nll)

    if compiled:
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, weight_decay=0.0), lr=1e-6, fused=True)
    if attached:
        cast(vbdrop.ELBO, objective).attach(optimizer)

    def step(_: int) -> None:
        optimizer.zero_grad()
        loss_of(images, labels).backward()
        optimizer.step()

    return step


def prepared(name: str, variant: str, batch: int) -> Callable[[int], None]:
    """The training step of a network made Bayesian in this way, after one warm-up step."""
    torch.manual_seed(0)
    model = network(name)
    images, labels = examples(name, batch)
    own = variant.removesuffix(COMPILED).removesuffix(ATTACHED)
    objective, kind = VARIANTS[own].make(model), variant.removeprefix(own)
    step = training_step(model, images, labels, objective, COMPILED in kind, ATTACHED in kind)
    step(0)
    return step


def times(name: str, variants: list[str], batch: int, rounds: int) -> dict[str, Any]:
    """Each variant's time in milliseconds and as a ratio to the first one, or the error that it raised."""
    torch.compiler.reset()  # the limit of compiled versions counts all networks of a process together
    cases: dict[str, Callable[[int], None]] = {}
    result: dict[str, Any] = {}
    for variant in variants:
        try:
            cases[variant] = prepared(name, variant, batch)
        except Exception as error:  # whatever another package raises is a result, too
            result[variant] = {"error": f"{type(error).__name__}: {error}"}
    seconds = interleaved(cases, rounds, round_seconds=0.01)
    for variant, figures in seconds.items():
        milliseconds = 1e3 * statistics.median(figures)
        result[variant] = {"milliseconds": milliseconds, "ratio": ratio(seconds, variant, variants[0])}
    return {variant: result[variant] for variant in variants}


def memory(name: str, variant: str, batch: int) -> float:
    """The peak memory in MB of a network and its training, beyond that of the process before."""
    prepared("1x8", variant, 8)  # torch and the package load more code at their first step
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # return freed memory, which could be reused without being counted
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = _kilobytes("VmRSS")
    step = prepared(name, variant, batch)
    for call in range(STEPS_FOR_MEMORY):
        step(call)
    return (_kilobytes("VmHWM") - before) / 1e3


def _kilobytes(field: str) -> int:
    """A figure of the process, as reported by Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Do what a task says.

    Args:
        task: ``network``, ``batch``, ``threads``, ``variants``, and ``rounds`` to time them; without ``rounds``, the
            memory of the only variant is measured.

    Returns:
        Variant -> ``milliseconds`` and ``ratio``, or ``megabytes``, or ``error``.
    """
    torch.set_num_threads(task["threads"])
    if "rounds" in task:
        return times(task["network"], task["variants"], task["batch"], task["rounds"])
    (variant,) = task["variants"]
    return {variant: {"megabytes": memory(task["network"], variant, task["batch"])}}


def in_a_process(task: dict[str, Any], packages: Path | None = None) -> dict[str, Any]:
    """`measure` in a new process; if that process fails, the error is that of all its variants.

    Args:
        task: What to measure.
        packages: A folder of further packages that it may import.
    """
    paths = [str(ROOT), *([str(packages)] if packages else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": str(task["threads"])}
    command = [sys.executable, "-m", "benchmarks.worker", json.dumps(task)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONGEST, check=False)
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        said = f"took longer than {LONGEST} s"
    except (IndexError, json.JSONDecodeError):
        said = next(iter(done.stderr.strip().splitlines()[-1:]), f"ended with status {done.returncode}")
    return {variant: {"error": said} for variant in task["variants"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", type=json.loads, help="JSON, as above")
    print(json.dumps(measure(parser.parse_args().task)))


if __name__ == "__main__":
    main()
