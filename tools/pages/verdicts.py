"""The paper's claims and what the records say about them, written when the site is built."""

from pathlib import Path

from vbdrop.experiments import PROTOCOLS, Book, table
from vbdrop.experiments.paired import LEAST, LEVEL
from vbdrop.experiments.verdicts import Verdict, verdicts
from vbdrop.experiments.versus import Contest


def verdicts_of(records: Path) -> str:
    """Say what holds, in Markdown: a table of the claims, then the comparisons behind them.

    Args:
        records: The folder of records.
    """
    found = verdicts({number: table(Book(protocol, records)) for number, protocol in PROTOCOLS.items()})
    lines = ["| Claim of the paper | here | why |", "|---|---|---|"]
    lines += [f"| {each.claim} | **{each.word}** | {each.reason} |" for each in found]
    parts = ["\n".join(lines), *(_comparisons(each) for each in found if each.contests)]
    return "\n\n".join(parts) + "\n"


def _comparisons(verdict: Verdict) -> str:
    lines = [
        f"*{verdict.claim}* Differences are of the first minus the second, in points, with the {100 * LEVEL:.0f} % "
        f"interval of the paired t-test over seeds; below {LEAST} pairs there is none.",
        "",
        "| where | | error | error at one size | what decides |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_line, verdict.contests)])


def _line(each: Contest) -> str:
    same = str(each.decisive) if each.basis == "one size" else "–"
    decides = {
        "error": "the error",
        "one size": "the error at one size",
        "dominance": "the error: one is smaller and better",
        "trade-off": "nothing: one is smaller, the other better",
    }[each.basis]
    return f"| {each.where} | {each.ours} – {each.rival} | {each.error} | {same} | {decides} |"
