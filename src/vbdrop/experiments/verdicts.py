"""The paper's claims, and what the records say about each.

A claim is about several comparisons: see :mod:`vbdrop.experiments.versus`. Those with fewer than three pairs of runs
show a direction and decide nothing. The p-values of the others are adjusted for their number (Holm); a comparison is
decided if its own is below 5 %.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vbdrop.experiments.paired import LEAST, LEVEL, holm
from vbdrop.experiments.tables import Table
from vbdrop.experiments.versus import Contest, Pair, contest, contests, pairs

Word: TypeAlias = Literal["holds", "holds in part", "contradicted", "no difference beyond chance", "undecided"]

ERRORS, WEIGHTS, NEURONS = (1, 2, 3), (4,), (5,)
"""The tables about errors, and those about the two kinds of compression."""


@dataclass(frozen=True)
class Verdict:
    """What the records say about a claim.

    Attributes:
        claim: The claim, as a sentence.
        word: The verdict.
        reason: Why, as a sentence.
        contests: The comparisons behind it.
    """

    claim: str
    word: Word
    reason: str
    contests: tuple[Contest, ...]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper that runs can decide.

    Attributes:
        text: The claim, as a sentence.
        tables: The tables that it is about.
        pairs: Finds what is to be compared in a table.
    """

    text: str
    tables: tuple[int, ...]
    pairs: Callable[[Table], list[Pair]]


def with_the_best(table: Table) -> list[Pair]:
    """Return each cell of the paper's method with all others of its column that the paper has.

    The table asks for all seeds of some rows, and of the best of the others on validation data. Rows with one seed only
    show a direction.
    """
    return [
        (cell, other)
        for cell in table.cells
        for other in table.cells
        if cell.row.ours and not other.row.ours and other.paper is not None and other.column.key == cell.column.key
    ]


CLAIMS = (
    Claim("As a regulariser, VBD has a lower error than VD.", ERRORS, pairs),
    Claim("As a regulariser, VBD has the lowest error of all methods.", ERRORS, with_the_best),
    Claim("On weights, VBD is sparser than sparse VD at an equal error.", WEIGHTS, pairs),
    Claim("On neurons, VBD is sparser than sparse VD at an equal error.", NEURONS, pairs),
)
"""The claims of Liu et al. that runs can decide."""


def verdicts(tables: Mapping[int, Table]) -> list[Verdict]:
    """Judge every claim.

    Args:
        tables: Number -> the table.

    Example:
        >>> from pathlib import Path
        >>> from vbdrop.experiments import PROTOCOLS, Book, table
        >>> none = {number: table(Book(each, Path("no/such/folder"))) for number, each in PROTOCOLS.items()}
        >>> verdicts(none)[0].word
        'undecided'
    """
    said = []
    for claim in CLAIMS:
        compared = [(tables[number], claim.pairs(tables[number])) for number in claim.tables]
        found = [each for whole, some in compared for each in contests(whole, some)]
        unmade = sum(
            ours.seeds >= LEAST and contest(whole, ours, rival) is None
            for whole, some in compared
            for ours, rival in some
        )
        said.append(judge(claim.text, found, unmade))
    return said


def judge(claim: str, found: Sequence[Contest], unmade: int = 0) -> Verdict:
    """Judge a claim by its comparisons.

    Args:
        claim: The claim.
        found: The comparisons; in each, a negative difference is in favour of the claim.
        unmade: How many comparisons are still missing for which our method gets enough runs to decide.
    """
    word, reason = _judged(found, unmade)
    return Verdict(claim, word, reason, tuple(found))


def _judged(found: Sequence[Contest], unmade: int) -> tuple[Word, str]:
    if not found:
        return "undecided", "No two runs that can be compared have been made yet."
    decisive = [each.decisive for each in found if each.decisive is not None and each.decisive.p is not None]
    lower = sum(each.error.mean < 0 for each in found)
    counted = f"Ours has the lower mean error in {lower} of {_number(len(found))}"
    left = f" {_number(unmade).capitalize()} still to be made." if unmade else ""
    if not decisive:
        return "undecided", f"{counted}. n is too small: none has {LEAST} pairs of runs and no trade-off.{left}"
    values = holm([each.p for each in decisive if each.p is not None])
    means = [each.mean for each in decisive]
    sure = [mean for mean, value in zip(means, values, strict=True) if value < 1 - LEVEL]
    better, worse = sum(mean < 0 for mean in sure), sum(mean > 0 for mean in sure)
    reason = (
        f"{counted}. Those that can decide, with at least {LEAST} pairs of runs and no trade-off: {len(decisive)}, by "
        f"{min(means):+.2f} to {max(means):+.2f} points; beyond chance at {100 * (1 - LEVEL):.0f} % after Holm's "
        f"correction: {better} for the claim, {worse} against it.{left}"
    )
    if worse:
        return "contradicted", reason
    planned = sum(each.seeds >= LEAST for each in found) + unmade
    if better and better >= planned:
        return "holds", reason
    return ("holds in part" if better else "no difference beyond chance"), reason


def _number(count: int) -> str:
    return f"{count} comparison" + ("" if count == 1 else "s")
