"""Counts the verdicts on the paper's claims, in the words of the README and of the results page."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from vbdrop.experiments import PROTOCOLS, Book, table
from vbdrop.experiments.verdicts import Verdict, Word, verdicts

SAID: dict[Word, tuple[str, str]] = {
    "holds": ("holds", "hold"),
    "holds in part": ("holds in part", "hold in part"),
    "mixed": ("is mixed", "are mixed"),
    "contradicted in part": ("is contradicted in part", "are contradicted in part"),
    "contradicted": ("is contradicted", "are contradicted"),
    "no difference beyond chance": ("shows no difference beyond chance", "show no difference beyond chance"),
    "undecided": ("is undecided so far", "are undecided so far"),
}
"""A verdict -> what is said of one claim, and of several."""


def verdicts_on(records: Path) -> list[Verdict]:
    """Judge every claim by the records.

    Args:
        records: The folder of records.
    """
    return verdicts({number: table(Book(protocol, records)) for number, protocol in PROTOCOLS.items()})


def counted(found: Sequence[Verdict]) -> str:
    """Count the verdicts in half a sentence, which may be followed by more.

    Args:
        found: The verdicts.
    """
    words = Counter(each.word for each in found)
    if len(words) == 1:
        return f"all {words.total()} of the paper's claims that runs can decide {SAID[next(iter(words))][1]}"
    parts = [f"{words[word]} {SAID[word][words[word] > 1]}" for word in get_args(Word) if words[word]]
    return f"of the paper's {words.total()} claims that runs can decide, {', '.join(parts[:-1])} and {parts[-1]}"
