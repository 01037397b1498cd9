"""The cost of a training step against the plain network's, here and in five other packages: time and peak memory.

    python -m benchmarks.peers [--quick] [--network 3x1060] [--batch 128] [--threads 1] [--output peers.json]

The packages (see `benchmarks.variants` for their versions) are installed from PyPI into a folder of their own, without
what they depend on: all that the layers need is torch, and the one that is here serves all of them. For each network,
batch and number of threads all packages take turns in one process; the memory of each is taken in a process of its own.
With ``--output`` every finished case is written, and a run that was ended goes on where it was. What fails is a row.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.networks import NETWORKS
from benchmarks.variants import VARIANTS
from benchmarks.worker import in_a_process

BATCHES = (32, 128, 512)
THREADS = (1, 2)
ROUNDS = 20

Row = dict[str, Any]
"""A variant at a network, batch and number of threads, with its figures or its error."""

_CASE = ("network", "batch", "threads")


def install(requirements: Iterable[str], cache: Path) -> Path:
    """A folder with these packages, and nothing that they depend on; made once.

    Raises:
        subprocess.CalledProcessError: pip cannot install them.
    """
    pinned = sorted(requirements)
    folder = cache / f"peers-{hashlib.sha256(' '.join(pinned).encode()).hexdigest()[:12]}"
    if not (folder / "installed").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
        subprocess.run([*command, *pinned], check=True)
        (folder / "installed").write_text("\n".join(pinned))
    return folder


def default_cache() -> Path:
    """Where the packages are kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vbdrop" / "benchmarks"


def rows_of(case: Row, timed: dict[str, Row], memory: dict[str, Row]) -> list[Row]:
    """A row a variant: its time, memory and their ratios to plain, or what went wrong."""
    plain = memory.get("plain", {}).get("megabytes")
    rows = []
    for name in timed:
        found = {**memory.get(name, {}), **timed[name]}
        if plain and "megabytes" in found:
            found["memory_ratio"] = found["megabytes"] / plain
        about = {"variant": name, "samples": VARIANTS[name].samples, "requirement": VARIANTS[name].requirement}
        rows.append({**case, **about, **found})
    return rows


def is_done(case: Row, rows: Iterable[Row]) -> bool:
    """Whether these rows have this case."""
    return any(all(row[key] == case[key] for key in _CASE) for row in rows)


def line(row: Row) -> str:
    """A row as text."""
    start = f"  {row['variant']:<16}{row['samples']:<13}"
    if "error" in row:
        return f"{start}{row['error'].splitlines()[0][:80]}"
    memory = f"{row['megabytes']:9.1f} MB{row['memory_ratio']:7.2f} x" if "memory_ratio" in row else ""
    return f"{start}{row['milliseconds']:9.2f} ms{row['ratio']:7.2f} x{memory}"


def write(path: Path, rows: list[Row]) -> None:
    """Write all rows, with what they were measured on."""
    about = {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.processor()}
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps({**about, "rows": rows}, indent=1))
    temporary.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, action="append", help="one of them; all if left out")
    parser.add_argument("--batch", type=int, action="append", help=f"{BATCHES} if left out")
    parser.add_argument("--threads", type=int, action="append", help=f"{THREADS} if left out")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="besides plain; all if left out")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="one batch, one thread, few rounds")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures; what it has is not measured again")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where the packages are kept")
    args = parser.parse_args()
    variants = ["plain", *(name for name in args.variant or VARIANTS if name != "plain")]
    packages = install({VARIANTS[name].requirement for name in variants} - {""}, args.cache)
    rows: list[Row] = json.loads(args.output.read_text())["rows"] if args.output and args.output.exists() else []
    batches = args.batch or ((128,) if args.quick else BATCHES)
    threads = args.threads or ((1,) if args.quick else THREADS)
    rounds = min(args.rounds, 5) if args.quick else args.rounds
    print(f"torch {torch.__version__}, {rounds} rounds; the packages are in {packages}")
    for network, batch, count in product(args.network or NETWORKS, batches, threads):
        case = {"network": network, "batch": batch, "threads": count}
        if not is_done(case, rows):
            timed = in_a_process({**case, "variants": variants, "rounds": rounds}, packages)
            memory = {name: in_a_process({**case, "variants": [name]}, packages)[name] for name in variants}
            rows += rows_of(case, timed, memory)
            if args.output:
                write(args.output, rows)
        print(f"{network}, batch {batch}, {count} threads")
        print("\n".join(line(row) for row in rows if is_done(case, [row])), flush=True)


if __name__ == "__main__":
    main()
