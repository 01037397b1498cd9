"""The paper's claims and what the records say about them, written when the site is built."""

from collections import Counter
from pathlib import Path
from typing import get_args

from vbdrop.experiments import PROTOCOLS, Book, table
from vbdrop.experiments.paired import LEAST, LEVEL
from vbdrop.experiments.verdicts import Verdict, Word, verdicts
from vbdrop.experiments.versus import EQUAL, Contest, size_difference


def in_short(records: Path) -> str:
    """Count the verdicts, in a sentence.

    Args:
        records: The folder of records.
    """
    found = Counter(each.word for each in _verdicts(records))
    counted = [f"{found[word]} {_COUNTED[word][found[word] > 1]}" for word in get_args(Word) if found[word]]
    said = f"of the {found.total()} claims that runs can decide, {', '.join(counted)}"
    if len(found) == 1:
        said = f"all {found.total()} claims that runs can decide {_COUNTED[next(iter(found))][1]}"
    return f"**In short:** {said}; one theoretical claim does not hold as stated.\n"


_COUNTED: dict[Word, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "holds in part": ("holds in part", "hold in part"),
    "mixed": ("is mixed", "are mixed"),
    "contradicted in part": ("is contradicted in part", "are contradicted in part"),
    "contradicted": ("is contradicted", "are contradicted"),
    "no difference beyond chance": ("shows no difference beyond chance", "show no difference beyond chance"),
    "undecided": ("is undecided so far", "are undecided so far"),
}
"""A verdict -> what is said of one claim, and of several."""


def _verdicts(records: Path) -> list[Verdict]:
    return verdicts({number: table(Book(protocol, records)) for number, protocol in PROTOCOLS.items()})


def verdicts_of(records: Path) -> str:
    """Say what holds, in Markdown: a table of the claims, then the comparisons behind them.

    Args:
        records: The folder of records.
    """
    found = _verdicts(records)
    lines = ["| Claim of the paper | here | why |", "|---|---|---|"]
    lines += [f"| {each.claim} | **{each.word}** | {each.reason} |" for each in found]
    parts = ["\n".join(lines), *(_comparisons(each) for each in found if each.contests)]
    return "\n\n".join(parts) + "\n"


def _comparisons(verdict: Verdict) -> str:
    lines = [
        f"*{verdict.claim}* Differences are the first minus the second, of errors in points, with the "
        f"{100 * LEVEL:.0f} % interval of the paired t-test over seeds; below {LEAST} pairs there is none.",
        "",
        "| where | | error | weights left | error at one size | what decides |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_line, verdict.contests)])


def _line(each: Contest) -> str:
    same = str(each.decisive) if each.basis == "one size" else "–"
    decides = {
        "error": "the error",
        "one size": "the error at one size",
        "equal error": f"the size: the errors are equal to within {EQUAL:g} points",
        "dominance": "the error: one is smaller and better",
        "trade-off": "nothing: one is smaller, the other better",
    }[each.basis]
    size = size_difference(each)
    return f"| {each.where} | {each.ours} – {each.rival} | {each.error} | {size} | {same} | {decides} |"
