"""Compare the cost of a training step, as a ratio to the plain network, with five other packages: time and memory.

    python -m benchmarks.peers [--quick] [--network 3x1060] [--batch 128] [--threads 1] [--output peers.json]

The packages (see `benchmarks.variants` for their versions) are installed from PyPI into a separate folder, without
their dependencies: the layers need only torch, and all of them use the installed one. For each network, batch size and
number of threads, all packages take turns in one process; the peak memory of each is measured in a separate process.
With ``--output``, every finished case is saved, and a stopped run resumes where it was. A failure is a row, too.
"""

import argparse
import hashlib
import subprocess
import sys
from collections.abc import Iterable
from itertools import product
from pathlib import Path

import torch

from benchmarks.cases import run
from benchmarks.networks import NETWORKS
from benchmarks.variants import VARIANTS
from vbdrop.cache import cache_dir

BATCHES = (32, 128, 512)
THREADS = (1, 2)
ROUNDS = 20


def install(requirements: Iterable[str], cache: Path) -> Path:
    """Return a folder with these packages, without their dependencies; it is made once.

    Packages that pip cannot install are printed; their rows will say that they are missing.
    """
    pinned = sorted(requirements)
    folder = cache / f"peers-{hashlib.sha256(' '.join(pinned).encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "installed").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade", "--target", str(folder)]
        missing = [each for each in pinned if subprocess.run([*command, each], check=False).returncode]
        if missing:
            print(f"pip cannot install {', '.join(missing)}")
        else:
            (folder / "installed").write_text("\n".join(pinned))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=NETWORKS, action="append", help="a network; all by default")
    parser.add_argument("--batch", type=int, action="append", help=f"{BATCHES} by default")
    parser.add_argument("--threads", type=int, action="append", help=f"{THREADS} by default")
    parser.add_argument("--variant", choices=VARIANTS, action="append", help="a variant besides plain; all by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="one batch, one thread, few rounds")
    parser.add_argument("--output", type=Path, help="a JSON file for the figures; its cases are not measured again")
    parser.add_argument("--cache", type=Path, default=cache_dir("benchmarks"), help="where the packages are kept")
    args = parser.parse_args()
    variants = ["plain", *(name for name in args.variant or VARIANTS if name != "plain")]
    packages = install({VARIANTS[name].requirement for name in variants} - {""}, args.cache)
    batches = args.batch or ((128,) if args.quick else BATCHES)
    threads = args.threads or ((1,) if args.quick else THREADS)
    rounds = min(args.rounds, 5) if args.quick else args.rounds
    print(f"torch {torch.__version__}, {rounds} rounds; the packages are in {packages}")
    combined = product(args.network or NETWORKS, batches, threads)
    cases = [{"network": network, "batch": batch, "threads": count} for network, batch, count in combined]
    run(cases, variants, rounds, args.output, packages)


if __name__ == "__main__":
    main()
