"""Try every architecture of the table: convert, train a step, kill channels, compress, compare, save, export.

    python -m benchmarks.models [--only PATTERN] [--output benchmarks/models/results.jsonl] [--list]

Each entry runs in its own process, with limits on time and memory, and becomes a line of JSON. With ``--output``,
entries that the file already has are not tried again. ``docs/models.md`` is made from ``results.jsonl`` beside this
file, by `python -m tools.models_page benchmarks/models/results.jsonl`.
"""

import argparse
import fnmatch
import json
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks.models.isolation import MEMORY, SECONDS, isolated
from benchmarks.models.table import ENTRIES
from benchmarks.models.verdict import line, shortcomings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="entries by name, such as 'timm/*' or 'resnet18'")
    parser.add_argument("--output", type=Path, help="a file of JSON lines; entries that it has are not tried again")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="the time limit for one entry")
    parser.add_argument("--memory", type=float, default=MEMORY, help="the memory limit for one entry, in GB")
    parser.add_argument("--workers", type=int, default=1, help="how many entries are tried at a time")
    parser.add_argument("--without", nargs="+", default=[], choices=["onnx", "latency"], help="steps to leave out")
    parser.add_argument("--list", action="store_true", help="print the names of the entries and exit")
    args = parser.parse_args()
    chosen = [key for key in ENTRIES if not args.only or any(matches(key, pattern) for pattern in args.only)]
    if args.list:
        print("\n".join(chosen))
        return
    done = read(args.output)
    with ThreadPoolExecutor(args.workers) as pool:
        limits = (args.seconds, args.memory, args.without)
        tasks = [pool.submit(isolated, key, *limits) for key in chosen if key not in done]
        for task in as_completed(tasks):
            row = task.result()
            done[row["entry"]] = row
            if args.output:
                with args.output.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(line(row), flush=True)
    good = sum(not shortcomings(done[key]) for key in chosen)
    print(f"{good} of {len(chosen)} hold")


def matches(key: str, pattern: str) -> bool:
    """Whether a pattern matches an entry, with or without its library."""
    return fnmatch.fnmatch(key, pattern) or fnmatch.fnmatch(key.partition("/")[2], pattern)


def read(path: Path | None) -> dict[str, dict[str, Any]]:
    """The lines of a file, by entry; the last one of an entry counts."""
    if path is None or not path.exists():
        return {}
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    return {row["entry"]: row for row in rows}


if __name__ == "__main__":
    main()
