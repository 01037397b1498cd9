"""The paper's claims and what the records say about them, written when the site is built."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tools.claims import counted, verdicts_on
from tools.pages.findings import headline

from vbdrop.experiments.paired import LEAST, LEVEL
from vbdrop.experiments.verdicts import Verdict
from vbdrop.experiments.versus import Contest, size_difference


def in_short(records: Path) -> str:
    """Count the verdicts, and give the main figures, in a few sentences.

    Args:
        records: The folder of records.
    """
    said = f"{counted(verdicts_on(records))}; one theoretical claim does not hold as stated."
    return f"**In short:** {said} {headline(records)}".strip() + "\n"


def verdicts_of(records: Path) -> str:
    """Say what holds, in Markdown: a table of the claims, then the comparisons behind them.

    Args:
        records: The folder of records.
    """
    found = verdicts_on(records)
    lines = ["| Claim of the paper | here | why |", "|---|---|---|"]
    lines += [f"| {each.claim} | **{each.word}** | {each.reason} |" for each in found]
    level = f"{100 * LEVEL:.0f} %"
    said = (
        f"Differences are the first minus the second, of errors in points, with the {level} interval of the "
        f"paired t-test over seeds. With fewer than {LEAST} pairs there is no interval, and nothing is decided."
    )
    parts = ["\n".join(lines), said, *(_comparisons(each) for each in found if each.contests)]
    return "\n\n".join(parts) + "\n"


def _comparisons(verdict: Verdict) -> str:
    """A table of those with enough pairs of runs to decide, then a list of the others."""
    enough = [each for each in verdict.contests if each.error.p is not None]
    few = [each for each in verdict.contests if each.error.p is None]
    parts = [f"*{verdict.claim}*"]
    if enough:
        parts.append("\n".join(_table(enough)))
    if few:
        title = "Too few pairs to decide (one each, unless another number is given):"
        places = [
            f"- {where}, {ours} minus: {'; '.join(map(_in_words, group))}"
            for (where, ours), group in groupby(few, key=lambda each: (each.where, each.ours))
        ]
        parts.append("\n".join([title, "", *places]))
    return "\n\n".join(parts)


def _table(contests: Sequence[Contest]) -> list[str]:
    """The comparisons line by line; sizes only if networks differ in size."""
    if all(each.size is None for each in contests):
        rows = [f"| {each.where} | {each.ours} – {each.rival} | {each.error} |" for each in contests]
        return ["| where | | error |", "|---|---|---|", *rows]
    head = "| where | | error | weights left | error at one size | what decides |"
    return [head, "|---|---|---|---|---|---|", *map(_sized, contests)]


def _sized(each: Contest) -> str:
    same = str(each.decisive) if each.basis == "one size" else "–"
    decides = {
        "error": "the error",
        "one size": "the error at one size",
        "equal error": f"the size: the errors are equal to within {each.equal or 0:g} points",
        "dominance": "the error: one is smaller and better",
        "trade-off": "nothing: one is smaller, the other better",
    }[each.basis]
    size = size_difference(each)
    return f"| {each.where} | {each.ours} – {each.rival} | {each.error} | {size} | {same} | {decides} |"


def _in_words(each: Contest) -> str:
    size = "" if each.size is None else f", {size_difference(each)} weights"
    pairs = "" if each.error.n == 1 else f" (n = {each.error.n})"
    return f"{each.rival} {each.error.mean:+.2f}{size}{pairs}"
