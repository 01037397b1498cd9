"""Write the page of architectures from what `python -m benchmarks.models` found.

python -m tools.models_page models.jsonl [--page docs/models.md]

It replaces the text between the marks on the page.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.table import ENTRIES
from benchmarks.models.verdict import EQUAL, Row, is_wrong, shortcomings

PAGE = Path(__file__).resolve().parents[1] / "docs" / "models.md"
BEGIN, END = "<!-- models: made by python -m tools.models_page -->", "<!-- end of models -->"

LIBRARIES = ("timm", "torchvision", "transformers")

MOST_REASONS = 3
"""The number of reasons given by vbdrop that are shown for an entry."""

EARLIER = "†"
"""The mark of a row with ``"earlier"``, which was made with an earlier version."""

LONGEST = 240
"""Longer text is cut off."""

HEADER = (
    "| architecture | owned | gone | parameters | multiply-adds | latency | rounded | difference | file | ONNX |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: list[str] | None = None) -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description="Write the page of architectures.")
    parser.add_argument("lines", type=Path, help="the output of python -m benchmarks.models")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args(arguments)
    rows = {row["entry"]: row for row in map(json.loads, args.lines.read_text().splitlines())}
    rows = dict(sorted(rows.items(), key=lambda item: list(ENTRIES).index(item[0]) if item[0] in ENTRIES else -1))
    page = args.page.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise SystemExit(f"{args.page} must have one line {BEGIN!r} and one line {END!r}.")
    head, rest = page.split(BEGIN)
    args.page.write_text(f"{head}{BEGIN}\n\n{section(list(rows.values()))}\n\n{END}{rest.split(END)[1]}")


def section(rows: Sequence[Row]) -> str:
    """All results, in Markdown."""
    parts = [overview(rows)]
    for library in LIBRARIES:
        own = [row for row in rows if row["entry"].startswith(f"{library}/")]
        if own:
            parts += [f"## {library}", "\n".join([HEADER, *map(line, own)])]
    lacking: dict[str, list[str]] = {}
    for row in rows:
        for reason in reasons(row):
            lacking.setdefault(reason, []).append(f"`{row['entry'].partition('/')[2]}`")
    if lacking:
        text = "\n".join(f"- {reason} ({', '.join(entries)})" for reason, entries in lacking.items())
        parts += ["## What falls short, and why", text]
    return "\n\n".join(parts)


def overview(rows: Sequence[Row]) -> str:
    """How many entries hold."""
    good, wrong = sum(not shortcomings(row) for row in rows), sum(map(is_wrong, rows))
    loaded = sum(row.get("loaded_difference", 1.0) <= EQUAL for row in rows)
    verified = sum(bool(row.get("onnx_verified")) for row in rows)
    exported = sum("onnx_verified" in row or "onnx" in row.get("errors", {}) for row in rows)
    first = {name: version for row in rows for name, version in row.get("versions", {}).items()}
    dates = sorted({row["date"] for row in rows if "date" in row})
    when = " to ".join(dict.fromkeys([dates[0], dates[-1]])) if dates else "no date"
    versions = ", ".join(f"{name} {version}" for name, version in first.items())
    return (
        f"{len(rows)} of the {len(ENTRIES)} entries of the table were run, {when}, {versions}. "
        f"**{good} of {len(rows)} hold** ({100 * good / len(rows):.0f} %); "
        f"{wrong} give other outputs than the model that was given; "
        f"{loaded} were saved and loaded with the same outputs; "
        f"{verified} of {exported} that were tried were exported to ONNX and gave the same outputs in ONNX Runtime."
        f"{_earlier(rows)}"
    )


def _earlier(rows: Sequence[Row]) -> str:
    """How many rows were made with an earlier version; their lines are marked."""
    count = sum(bool(row.get("earlier")) for row in rows)
    return f" {count} of the rows are of an earlier version of vbdrop ({EARLIER})." if count else ""


def line(row: Row) -> str:
    """A row of the table."""
    name = f"`{row['entry'].partition('/')[2]}`{f' {EARLIER}' if row.get('earlier') else ''}, {row['note']}"
    if "parameters_after" not in row:
        return f"| {name} | – | – | – | – | – | – | – | – | – |"
    macs = _share(row["macs_after"], row["macs"]) if row.get("macs") and row.get("macs_after") else "–"
    latencies = [f"{100 * row[name]:.0f} %" if name in row else "–" for name in ("latency", "rounded_latency")]
    difference = f"{row['difference']:.0e}"
    file = "yes" if row.get("loaded_difference", 1.0) <= EQUAL else "no"
    tried = "onnx_verified" in row or "onnx" in row.get("errors", {})
    onnx = ("yes" if row.get("onnx_verified") else "no") if tried else "–"
    forward = "" if row["own_forward"] else " (new forward)"
    figures = [f"{100 * row['owned']:.0f} %", f"{100 * row.get('gone', 0.0):.0f} %"]
    figures += [_share(row["parameters_after"], row["parameters"]), macs, *latencies, difference, file, onnx]
    return f"| {name}{forward} | {' | '.join(figures)} |"


def reasons(row: Row) -> list[str]:
    """What an entry lacks, and what stands in the way of more."""
    lacking = shortcomings(row)
    if lacking and "parameters_after" in row:
        way = {**row.get("in_the_way", {}), **row.get("left", {})}
        lacking = ["; ".join([*lacking, *(f"{place}: {reason}" for place, reason in list(way.items())[:MOST_REASONS])])]
    others = {name: said for name, said in row.get("errors", {}).items() if name in ("load", "onnx", "latency")}
    found = [*lacking, *(f"{name}: {said}" for name, said in others.items())]
    return [text if len(text) <= LONGEST else f"{text[:LONGEST]} ..." for text in found]


def _share(after: float, before: float) -> str:
    return f"{100 * after / before:.0f} %"


if __name__ == "__main__":
    main()
