"""Measure whole runs of structured VBD that shrink while they train, against the plain network and not shrinking.

    python -m benchmarks.shrinking [--model lenet-500-300 --model lenet-5] [--seeds 3] [--epochs 20] [--out FILE]

On MNIST. For every network and seed there are three runs: the plain network, `vbd-gates`, and `vbd-gates` with
`shrink_every`. Each has its own process with one thread, and they take turns epoch by epoch, so that a busy moment of
the machine affects all of them alike. An epoch's time is that of its steps, of the removal before it and of the
evaluation after it. The results go into a JSON file; if started again, the benchmark continues with what is missing
there.
"""

import argparse
import json
import multiprocessing
import statistics
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from vbdrop.analysis.graph import trace
from vbdrop.experiments import make_method, resolve
from vbdrop.experiments.counts import EXAMPLES, count, units
from vbdrop.experiments.environment import environment
from vbdrop.experiments.inputs import examples, facts
from vbdrop.models import build
from vbdrop.train import Budget, Epoch, fit

DATA = "mnist"
RUNS: Mapping[str, tuple[str, int | None]] = {
    "plain": ("plain", None),
    "gates": ("vbd-gates", None),
    "gates, shrinking": ("vbd-gates", 1),
}
"""Name -> method, and the number of epochs between removals of units that stayed dead."""


def run(turn: Connection, name: str, model: str, seed: int, epochs: int) -> None:
    """Train in turns: one epoch for every message, answered with its seconds; the last answer has the final figures."""
    torch.set_num_threads(1)
    method_name, shrink_every = RUNS[name]
    method = make_method(method_name, {})
    budget = Budget(epochs=epochs, seed=seed, shrink_every=shrink_every)
    config = resolve(method, model=model, data=DATA, checksum=facts(DATA).checksum, budget=budget)
    data = examples(config)
    torch.manual_seed(seed)
    network = build(model)
    clocks = (time.perf_counter, time.process_time)
    turn.recv()
    started = [clock() for clock in clocks]

    def report(done: int, steps: int, epoch: Epoch | None) -> None:
        nonlocal started
        if epoch is not None:
            wall, cpu = (clock() - start for clock, start in zip(clocks, started, strict=True))
            error = None if epoch.evaluation is None else epoch.evaluation.error
            turn.send({"epoch": epoch.epoch, "wall": wall, "cpu": cpu, "error": error})
            turn.recv()
            started = [clock() for clock in clocks]

    trained = fit(method, network, data.train, data.test, budget, report=report)
    layers = count(trained.network, trace(trained.network.eval(), (data.test.inputs[:EXAMPLES],)))
    turn.send({"error": trained.evaluation.error, "units": units(layers)})


def side_by_side(model: str, seed: int, epochs: int) -> dict[str, Any]:
    """Make the three runs of a network and a seed, and return the seconds and figures of each."""
    context = multiprocessing.get_context("spawn")
    turns, processes = {}, []
    for name in RUNS:
        turns[name], other = context.Pipe()
        processes.append(context.Process(target=run, args=(other, name, model, seed, epochs), daemon=True))
        processes[-1].start()
        other.close()
    seconds: dict[str, list[dict[str, Any]]] = {name: [] for name in RUNS}
    for _ in range(epochs):
        for name, turn in turns.items():
            turn.send("go")
            seconds[name].append(turn.recv())
        said = "  ".join(f"{name} {each[-1]['cpu']:5.2f} s {each[-1]['error']:.2f} %" for name, each in seconds.items())
        print(f"{model} seed {seed} epoch {len(seconds['plain']):>3}  {said}", flush=True)
    result = {}
    for name, turn in turns.items():
        turn.send("go")
        totals = {clock: sum(epoch[clock] for epoch in seconds[name]) for clock in ("wall", "cpu")}
        result[name] = turn.recv() | totals | {"epochs": seconds[name]}
    for process in processes:
        process.join()
    return result


def ratios(results: list[Mapping[str, Any]], clock: str, name: str) -> list[float]:
    """The time of a run divided by that of the plain one, one figure per seed."""
    return [result["runs"][name][clock] / result["runs"]["plain"][clock] for result in results]


def show(results: list[dict[str, Any]]) -> None:
    """Print a table."""
    print(f"{'':<15}{'':<18}{'wall / plain':>14}{'CPU / plain':>14}{'error %':>16}   units that are left")
    for model in dict.fromkeys(result["model"] for result in results):
        own = [result for result in results if result["model"] == model]
        for name in RUNS:
            errors = [result["runs"][name]["error"] for result in own]
            spread = f" ± {statistics.stdev(errors):.2f}" if len(errors) > 1 else ""
            wall, cpu = (statistics.fmean(ratios(own, clock, name)) for clock in ("wall", "cpu"))
            left = "-".join(map(str, own[0]["runs"][name]["units"]))
            error = f"{statistics.fmean(errors):.2f}{spread}"
            print(f"{model:<15}{name:<18}{wall:>14.2f}{cpu:>14.2f}{error:>16}   {left}  ({len(own)} seeds)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", action="append", choices=["lenet-500-300", "lenet-5", "lenet-300-100"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("shrinking.json"))
    args = parser.parse_args()
    results: list[dict[str, Any]] = json.loads(args.out.read_text())["results"] if args.out.exists() else []
    for seed in range(args.seeds):
        for model in args.model or ["lenet-500-300", "lenet-5"]:
            case = {"model": model, "seed": seed, "budget_epochs": args.epochs}
            if any(case.items() <= result.items() for result in results):
                continue
            results.append(case | {"runs": side_by_side(model, seed, args.epochs)})
            args.out.write_text(json.dumps({"environment": environment(), "results": results}, indent=1) + "\n")
    show([result for result in results if result["budget_epochs"] == args.epochs])


if __name__ == "__main__":
    main()
