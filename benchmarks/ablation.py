"""Measure what each kernel saves: the time of a training step without it, against the step with all of them.

    python -m benchmarks.ablation [--network LeNet-5] [--batch 128] [--rounds 30]

On one thread. PyTorch formulas replace a kernel that is off.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from benchmarks.networks import NETWORKS
from benchmarks.timing import ratio
from benchmarks.worker import prepared
from vbdrop.exporting.latency import interleaved
from vbdrop.kernels import gates, kl, weights


def never(*_: object, **__: object) -> bool:
    return False


KERNELS: dict[str, tuple[str, list[tuple[object, str]]]] = {
    "noisy_linear.c": ("vbdrop Weights", [(weights, "takes_linear")]),
    "noisy_linear.c, rates": ("vbdrop Rates", [(weights, "takes_linear")]),
    "weights.c and noisy_linear.c": ("vbdrop Weights", [(weights, "takes")]),
    "weights.c, the KL": ("vbdrop Weights", [(kl, "takes")]),
    "gated_linear.c": ("vbdrop Units", [(gates, "takes_linear")]),
    "gates.c and gated_linear.c": ("vbdrop Units", [(gates, "takes_linear"), (gates, "takes_gates")]),
}
"""What is off -> the mode in which it matters, and the functions that choose the kernel."""


@contextmanager
def without(places: list[tuple[object, str]]) -> Iterator[None]:
    """Choose the PyTorch formulas at these places, inside the context."""
    before = [getattr(module, name) for module, name in places]
    for module, name in places:
        setattr(module, name, never)
    try:
        yield
    finally:
        for (module, name), choice in zip(places, before, strict=True):
            setattr(module, name, choice)


def off(step: Callable[[int], None], places: list[tuple[object, str]]) -> Callable[[int], None]:
    def changed(call: int) -> None:
        with without(places):
            step(call)

    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="a network; all by default")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for network in args.network or NETWORKS:
        modes = dict.fromkeys(mode for mode, _ in KERNELS.values())
        cases = {mode: prepared(network, mode, args.batch) for mode in modes}
        cases |= {name: off(prepared(network, mode, args.batch), places) for name, (mode, places) in KERNELS.items()}
        seconds = interleaved(cases, args.rounds, round_seconds=0.01)
        print(network)
        for name, (mode, _) in KERNELS.items():
            print(f"  without {name:<38}{ratio(seconds, name, mode):6.2f} x {mode}", flush=True)


if __name__ == "__main__":
    main()
