"""Measures variants case by case (a network, a batch size and a number of threads), and saves the results."""

import json
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from benchmarks.variants import VARIANTS
from benchmarks.worker import in_a_process

Row = dict[str, Any]
"""One variant in one case, with its figures or its error."""

_CASE = ("network", "batch", "threads")


def run(
    cases: Iterable[Row], variants: list[str], rounds: int, output: Path | None = None, packages: Path | None = None
) -> list[Row]:
    """Measure the variants in each case and print them, one row each.

    Args:
        cases: ``network``, ``batch`` and ``threads`` of each.
        variants: What to compare; the first is plain.
        rounds: How many times all of them are timed, in turn.
        output: A file for the figures; cases that it already has are not measured again.
        packages: A folder of packages that the variants need.

    Returns:
        All rows, including those of the file.
    """
    rows: list[Row] = json.loads(output.read_text())["rows"] if output and output.exists() else []
    for case in cases:
        if not set(variants) <= {row["variant"] for row in of_case(case, rows)}:
            timed = in_a_process({**case, "variants": variants, "rounds": rounds}, packages)
            memory = {name: in_a_process({**case, "variants": [name]}, packages)[name] for name in variants}
            rows = [row for row in rows if row not in of_case(case, rows)] + rows_of(case, timed, memory)
            if output:
                write(output, rows)
        print(f"{case['network']}, batch {case['batch']}, {case['threads']} threads")
        print("\n".join(line(row) for row in of_case(case, rows)), flush=True)
    return rows


def rows_of(case: Row, timed: dict[str, Row], memory: dict[str, Row]) -> list[Row]:
    """One row per variant: its time, its memory and their ratios to plain, or what went wrong."""
    plain = memory.get("plain", {}).get("megabytes")
    rows = []
    for name in timed:
        found = {**memory.get(name, {}), **timed[name]}
        if plain and "megabytes" in found:
            found["memory_ratio"] = found["megabytes"] / plain
        about = {"variant": name, "samples": VARIANTS[name].samples, "requirement": VARIANTS[name].requirement}
        rows.append({**case, **about, **found})
    return rows


def of_case(case: Row, rows: Iterable[Row]) -> list[Row]:
    """The rows of this case."""
    return [row for row in rows if all(row[key] == case[key] for key in _CASE)]


def line(row: Row) -> str:
    """A row as text."""
    start = f"  {row['variant']:<16}{row['samples']:<13}"
    if "error" in row:
        return f"{start}{row['error'].splitlines()[0][:80]}"
    memory = f"{row['megabytes']:9.1f} MB{row['memory_ratio']:7.2f} x" if "memory_ratio" in row else ""
    return f"{start}{row['milliseconds']:9.2f} ms{row['ratio']:7.2f} x{memory}"


def write(path: Path, rows: list[Row]) -> None:
    """Write all rows, with the machine and versions that they were measured on."""
    about = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.processor()}
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({**about, "rows": rows}, indent=1))
    temporary.replace(path)
