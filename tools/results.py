"""Write the results in the README from the records.

python -m tools.results [--check]

It contains only what has been run; `vbdrop table` and the results page have everything. With `--check` nothing is
written, and the exit code is 1 if the README does not agree with the records.
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.claims import counted, verdicts_on

from vbdrop.experiments import Book, TableCell, protocol_of, table

PROJECT = Path(__file__).resolve().parents[1]
README, RECORDS = PROJECT / "README.md", PROJECT / "records"
BEGIN, END = "<!-- results: made by python -m tools.results -->", "<!-- end of results -->"

ERRORS = {1: "340", 2: "1", 3: "1"}
"""Tables of errors, and the column that stands for each."""

ERROR_TITLES = {1: "MNIST, 3 x 340 units", 2: "CIFAR-10, Kingma's network", 3: "SVHN, Kingma's network"}


def main(arguments: list[str] | None = None) -> int:
    """Write the README, or check it."""
    parser = argparse.ArgumentParser(description="Write the results in the README from the records.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the README is not up to date")
    check = parser.parse_args(arguments).check
    before = README.read_text()
    after = replaced(before, results(RECORDS))
    if check and after != before:
        print("README.md does not have the results of the records: run python -m tools.results", file=sys.stderr)
        return 1
    if not check:
        README.write_text(after)
    return 0


def replaced(page: str, text: str) -> str:
    """Put the results between their marks.

    Args:
        page: The README.
        text: The results.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1:
        raise SystemExit(f"README.md must have one line {BEGIN!r} and one line {END!r}.")
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}"


def results(records: Path) -> str:
    """Lay out what has been run, in Markdown.

    Args:
        records: The folder of records.
    """
    weights, neurons = (_run(number, records) for number in (4, 5))
    errors = {number: [c for c in _run(number, records) if c.column.key == key] for number, key in ERRORS.items()}
    parts = []
    if weights:
        parts.append(
            'Fewer weights, MNIST. The columns "fewer weights" say how many times fewer non-zero weights are left:\n\n'
            + _fewer_weights(weights)
        )
    if neurons:
        parts.append(
            'Fewer neurons, MNIST. The columns "fewer weights" say how many times fewer weights connect the neurons '
            "that are left (for the paper, computed from the neuron counts it reports):\n\n" + _fewer_neurons(neurons)
        )
    if any(errors.values()):
        parts.append("Learned rates as a regulariser, test error in %:\n\n" + _errors(errors))
    cells = [cell for column in (weights, neurons, *errors.values()) for cell in column]
    if cells:
        said = counted(verdicts_on(records))
        parts.insert(0, f"{said[0].upper()}{said[1:]}: see [what was learned](docs/results.md).\n")
    return "\n".join([*parts, _note(cells)])


def _run(number: int, records: Path) -> list[TableCell]:
    """Cells of a table with numbers; rows with the same runs, pooled or since nothing was chosen, appear once."""
    cells = table(Book(protocol_of(number), records)).cells
    once = {
        (cell.column.key, cell.runs if cell.is_by_default else cell.row.key): cell
        for cell in cells
        if cell.ours is not None and cell.column.key not in cell.row.pooled
    }
    return sorted(once.values(), key=lambda cell: cell.column.key)


def _fewer_weights(cells: list[TableCell]) -> str:
    rows = [(*_head(cell), _times(cell.ours.ratio.mean), _paper_times(cell)) for cell in cells if cell.ours]
    return _markdown((*HEAD, "fewer weights", "paper"), rows)


def _fewer_neurons(cells: list[TableCell]) -> str:
    rows = []
    for cell in cells:
        if cell.ours is not None:
            units = "-".join(f"{n:.0f}" for n in cell.ours.units) if cell.ours.units else "–"
            rows.append((*_head(cell), _times(cell.ours.compact_ratio.mean), _paper_times(cell), units))
    return _markdown((*HEAD, "fewer weights", "paper", "neurons left"), rows)


HEAD = ("network", "method", "test error %", "paper")


def _head(cell: TableCell) -> tuple[str, ...]:
    return cell.column.title, _name(cell), _error(cell), f"{cell.paper.error:.2f}" if cell.paper else "–"


def _paper_times(cell: TableCell) -> str:
    return _times(cell.paper.ratio) if cell.paper and cell.paper.ratio else "–"


def _times(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 20 or ratio == 1 else f"{ratio:.1f}x"


def _errors(columns: dict[int, list[TableCell]]) -> str:
    numbers = [number for number, cells in columns.items() if cells]
    titles = dict.fromkeys(_name(cell) for cells in columns.values() for cell in cells)
    rows = []
    for title in titles:
        row = [title]
        for number in numbers:
            found = next((cell for cell in columns[number] if _name(cell) == title), None)
            row += ["–", "–"] if found is None else [_error(found), f"{found.paper.error:.2f}" if found.paper else "–"]
        rows.append(tuple(row))
    header = ["method"]
    for number in numbers:
        header += [ERROR_TITLES[number], "paper"]
    return _markdown(header, rows)


def _name(cell: TableCell) -> str:
    return f"**{cell.row.title}**" if cell.row.ours else cell.row.title


def _error(cell: TableCell) -> str:
    if cell.ours is None:
        return "–"
    error = cell.ours.error
    spread = "" if error.sd is None else f" ± {error.sd:.2f}"
    facts = [] if error.sd is None else [f"n = {error.n}"]
    if cell.other_epochs is not None:
        facts.append(f"{cell.other_epochs} epochs")
    given = f" ({', '.join(facts)})" if facts else ""
    return f"{error.mean:.2f}{spread}{given}" + (" †" if cell.older else " *" if cell.is_by_default else "")


def _note(cells: list[TableCell]) -> str:
    """Say how many runs are behind a number, and where settings were not chosen."""
    counts = sorted({cell.ours.error.n for cell in cells if cell.ours is not None})
    if not counts:
        return "Nothing has been recorded yet.\n"
    several = "one run each" + ("" if counts == [1] else " or, where n is given, the mean ± standard deviation of n")
    said = [f"Ours: {several}, on the test data after the last epoch."]
    if any(cell.is_by_default for cell in cells):
        said.append("\\* with settings that may change: their trials have not all been run.")
    if any(cell.older for cell in cells):
        said.append("† runs of an older version, whose arithmetic differs; not comparable with the rest.")
    said += _epochs(cells)
    return f"{' '.join(said)}\n"


def _epochs(cells: list[TableCell]) -> list[str]:
    """Say that CIFAR-10 and SVHN have fewer epochs than in the paper."""
    fewer = [cell for cell in cells if cell.column.data in ("cifar10", "svhn")]
    epochs = "/".join(str(each) for each in sorted({cell.column.budget.epochs for cell in fewer}))
    dagger = " (†: fewer)" if any(cell.other_epochs is not None for cell in fewer) else ""
    return [f"CIFAR-10 and SVHN: {epochs} epochs{dagger} where the paper has 100."] if fewer else []


def _markdown(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(header)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
