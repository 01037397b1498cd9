"""Outcomes of training: the seed of a run, and margins that are derived from the spread over seeds.

A test that trains and asserts on the outcome has the marker ``trained`` and states the mean and the standard deviation
of that outcome over seeds. ``make test SEED=7 ARGS="-m trained"`` runs these tests at another seed, and
``VBDROP_TEST_THREADS=2`` with two threads. With
``VBDROP_TEST_OUTCOMES=file`` every outcome is appended to that file, one line of JSON each, and
``python -m tests.trained file`` shows their spread.
"""

import json
import os
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SEED_VARIABLE = "VBDROP_TEST_SEED"
OUTCOMES_VARIABLE = "VBDROP_TEST_OUTCOMES"

DEVIATIONS = 5.0
"""The least distance of a limit from the mean of an outcome, in standard deviations over ten seeds."""


def chosen_seed() -> int:
    """The seed at which the trained outcomes are to be checked; 0 unless the environment says otherwise."""
    value = os.environ.get(SEED_VARIABLE, "") or "0"
    if not value.isascii() or not value.isdigit():
        raise ValueError(f"the environment variable {SEED_VARIABLE} must be an integer >= 0; got {value!r}.")
    return int(value)


@contextmanager
def moved_seeds() -> Iterator[None]:
    """Move every seed that is given to `torch.manual_seed` by the chosen one, also in examples and pages."""
    manual_seed = torch.manual_seed
    torch.manual_seed = lambda seed: manual_seed(seed + 1000 * chosen_seed())
    try:
        yield
    finally:
        torch.manual_seed = manual_seed


def below(limit: float, value: float, *, mean: float, sd: float) -> None:
    """Assert that an outcome is below a limit that its stated spread keeps it from."""
    assert mean + DEVIATIONS * sd <= limit, f"{limit} is within {DEVIATIONS:g} deviations of {mean} ± {sd}"
    _note(value, f"< {limit:g}", mean, sd)
    assert value < limit


def above(limit: float, value: float, *, mean: float, sd: float) -> None:
    """Assert that an outcome is above a limit that its stated spread keeps it from."""
    assert mean - DEVIATIONS * sd >= limit, f"{limit} is within {DEVIATIONS:g} deviations of {mean} ± {sd}"
    _note(value, f"> {limit:g}", mean, sd)
    assert value > limit


def _note(value: float, claim: str, mean: float, sd: float) -> None:
    if path := os.environ.get(OUTCOMES_VARIABLE):
        test = re.sub(r" \(.*\)$", "", os.environ.get("PYTEST_CURRENT_TEST", ""))
        at = sys._getframe(2).f_lineno
        line = {
            "test": test,
            "line": at,
            "seed": chosen_seed(),
            "claim": claim,
            "value": float(value),
            "mean": mean,
            "sd": sd,
        }
        with Path(path).open("a") as file:
            file.write(json.dumps(line) + "\n")


def spreads(path: str | Path) -> str:
    """The recorded outcomes as a table: their number, mean and standard deviation, and the margin in deviations."""
    found: dict[tuple[str, int, str], list[dict[str, float]]] = defaultdict(list)
    for line in map(json.loads, Path(path).read_text().splitlines()):
        found[line["test"], line["line"], line["claim"]].append(line)
    rows = ["| test | claim | n | mean | sd | worst | margin / sd | stated |", "|---|---|--:|--:|--:|--:|--:|--:|"]
    for (test, _, claim), lines in found.items():
        values = [line["value"] for line in lines]
        mean, sd = statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0
        sign, limit = (1 if claim[0] == "<" else -1), float(claim[2:])
        worst = sign * max(sign * value for value in values)
        margin = f"{sign * (limit - mean) / sd:.1f}" if sd else "-"
        stated = f"{lines[-1]['mean']:g} ± {lines[-1]['sd']:g}"
        rows.append(f"| {test} | {claim} | {len(values)} | {mean:.4g} | {sd:.2g} | {worst:.4g} | {margin} | {stated} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(spreads(sys.argv[1]))
