"""Repeat a few recorded runs, chosen at random with the commit as the seed, so that nobody picks them.

    python -m tools.check_records [--count 3] [--minutes M] [--data-dir DIR] [--records DIR]

Each is repeated twice with ``vbdrop rerun``: with the code of its own commit, in a temporary work tree, where every bit
must be the same on the same kind of processor; and with the current code, where its figures must lie within the spread
of the recorded seeds. The same commit picks the same records, so a check can be repeated; a new commit picks others.
Only records whose arithmetic does not change with the kernels are picked: those that the tables count.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vbdrop.experiments import Record, all_records, compare, record_of
from vbdrop.experiments.environment import commit
from vbdrop.experiments.spread import FAULTS, spreads, verdict_on
from vbdrop.experiments.table_runs import ARITHMETIC
from vbdrop.train import RecordError

PROJECT = Path(__file__).resolve().parents[1]


def main(arguments: list[str] | None = None) -> int:
    """Pick records, repeat their runs, and print the verdicts."""
    parser = argparse.ArgumentParser(description="Repeat a few recorded runs, picked at random by the commit.")
    parser.add_argument("--count", type=int, default=3, help="how many (3)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="only records that took at most this long")
    parser.add_argument("--records", type=Path, default=PROJECT / "records")
    parser.add_argument("--data-dir", type=Path)
    asked = parser.parse_args(arguments)
    here = commit()
    picked = pick(candidates(asked.records, 60 * asked.minutes), asked.count, here.rstrip("+"))
    if not picked:
        print(f"no record in {asked.records} can be checked", file=sys.stderr)
        return 1
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for record in picked:
            for name, tree in (("at its commit", made_at(record)), ("at this one", here)):
                with sources(tree, Path(folder)) as source:
                    verdict = again(record, source, Path(folder) / tree / "again", asked.data_dir)
                print(f"{record.folder.name} {name}, {tree[:12]}: {verdict}", flush=True)
                bad += verdict in FAULTS or verdict.startswith("failed")
    return int(bad > 0)


def made_at(record: Record) -> str:
    """Return the commit that a record names; empty if it names none.

    Args:
        record: The record of a run that has ended.
    """
    return str(record.environment["sessions"][-1]["versions"].get("commit", ""))


def candidates(records: Path, seconds: float = float("inf")) -> list[Record]:
    """Return the records that can be repeated at their own commit: all of each was made there.

    Args:
        records: The folder of records.
        seconds: The longest that a run may have taken.
    """
    found = []
    for record in all_records(records):
        try:
            if not record.finished or record.config.arithmetic != ARITHMETIC:
                continue
            sessions = record.environment["sessions"]
            spent = sum(session.get("seconds", 0.0) for session in sessions)
            commits = {session["versions"].get("commit", "") for session in sessions}
        except (RecordError, KeyError) as error:
            print(f"{record.folder.name} is left out: {error}", file=sys.stderr)
            continue
        if spent <= seconds and len(commits) == 1 and is_known(*commits):
            found.append(record)
    return found


def is_known(name: str) -> bool:
    """Return whether the repository has a commit; one with ``+`` had changes that were not committed."""
    if not name or name.endswith("+"):
        return False
    command = ["git", "-C", str(PROJECT), "cat-file", "-e", f"{name}^{{commit}}"]
    return subprocess.run(command, capture_output=True).returncode == 0


def pick(records: Sequence[Record], count: int, seed: str) -> list[Record]:
    """Return some records at random.

    Args:
        records: The records, in any order.
        count: How many; all if there are fewer.
        seed: What the choice depends on, besides the names of the records.
    """
    by_name = sorted(records, key=lambda record: record.folder.name)
    return random.Random(seed).sample(by_name, min(count, len(by_name)))


@contextmanager
def sources(name: str, folder: Path) -> Iterator[Path]:
    """The sources at a commit; for the commit of this work tree, its own files.

    Args:
        name: The commit.
        folder: Where a work tree is made if one is needed.
    """
    if name == commit():
        yield PROJECT / "src"
        return
    tree = folder / name / "tree"
    subprocess.run(["git", "-C", str(PROJECT), "worktree", "add", "-q", "--detach", str(tree), name], check=True)
    try:
        yield tree / "src"
    finally:
        subprocess.run(["git", "-C", str(PROJECT), "worktree", "remove", "--force", str(tree)], check=True)


def again(record: Record, source: Path, folder: Path, data_dir: Path | None = None) -> str:
    """Repeat a recorded run with given sources, and judge it by today's rules.

    Args:
        record: The record.
        source: The folder with the package.
        folder: Where the new run gets its own folder.
        data_dir: Where the data are.

    Returns:
        The verdict of ``vbdrop rerun``, or why the run failed.
    """
    data = [] if data_dir is None else ["--data-dir", str(data_dir.resolve())]
    command = [sys.executable, "-m", "vbdrop", "rerun", str(record.folder.resolve()), "--records", str(folder), *data]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [*command, "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, **threads, "PYTHONPATH": str(source)},
        cwd=source,
    )
    made = record_of(record.config, folder)
    if not made.finished:
        return f"failed: {(done.stderr.strip().splitlines() or ['no output'])[-1]}"
    return verdict_on(compare(record, made), spreads(record, made))


if __name__ == "__main__":
    sys.exit(main())
