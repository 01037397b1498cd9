"""The paper's claims, and what the records say about each.

A claim is about several comparisons: see :mod:`vbdrop.experiments.versus`. Those with fewer than three pairs of runs
show a direction and decide nothing. The p-values of the others are adjusted for the number of comparisons that the
tables plan (Holm), whether they have been made or not, so that a verdict does not vanish as further runs arrive; a
comparison is decided if its own is below 5 %.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vbdrop.experiments.paired import LEAST, LEVEL, holm
from vbdrop.experiments.tables import Table
from vbdrop.experiments.versus import ONE_SIZE, Contest, Pair, alike, contest, contests, pairs

Word: TypeAlias = Literal[
    "holds",
    "holds in part",
    "mixed",
    "contradicted in part",
    "contradicted",
    "no difference beyond chance",
    "undecided",
]
"""In part: beyond chance in some of the planned comparisons; mixed: in some for the claim, in others against it."""

ERRORS, WEIGHTS, NEURONS = (1, 2, 3), (4,), (5,)
"""The tables about errors, and those about the two kinds of compression."""

OURS = "VBD"
NOTHING = "No two runs that can be compared have been made yet."


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
        rival: The method that VBD is compared with; empty for all others.
    """

    text: str
    tables: tuple[int, ...]
    pairs: Callable[[Table], list[Pair]]
    rival: str = ""


def with_the_best(table: Table) -> list[Pair]:
    """Return each cell of the paper's method with all others of its column that the paper has and that are tuned alike.

    The table asks for all seeds of some rows, and of the best of the others on validation data. Rows with one seed only
    show a direction. Where sizes count, the original network and rows that choose otherwise are no rivals.
    """
    return [
        (cell, alike(table, cell, other))
        for cell in table.cells
        for other in table.cells
        if cell.row.ours
        and not other.row.ours
        and other.paper is not None
        and (other.column.key, other.row.choice) == (cell.column.key, cell.row.choice)
    ]


CLAIMS = (
    Claim("As a regulariser, VBD has a lower error than VD.", ERRORS, pairs, "VD"),
    Claim("As a regulariser, VBD has the lowest error of all methods.", ERRORS, with_the_best),
    Claim("On weights, VBD is sparser than sparse VD at an equal error.", WEIGHTS, pairs, "Sparse VD"),
    Claim("On weights, VBD compresses best of all methods (pruning, DNS, SWS, sparse VD).", WEIGHTS, with_the_best),
    Claim("On neurons, VBD is sparser than sparse VD at an equal error.", NEURONS, pairs, "Sparse VD"),
    Claim("On neurons, VBD compresses best of all methods (SSL, SBP, sparse VD).", NEURONS, with_the_best),
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
            min(ours.seeds, rival.seeds) >= LEAST and contest(whole, ours, rival) is None
            for whole, some in compared
            for ours, rival in some
        )
        said.append(judge(claim.text, found, unmade, _lacking(claim, [pair for _, some in compared for pair in some])))
    return said


def _lacking(claim: Claim, compared: Sequence[Pair]) -> str:
    """Say which side has no runs that the tables ask for."""
    ours, theirs = (any(pair[side].by_seed for pair in compared) for side in (0, 1))
    if ours and theirs:
        return NOTHING
    if ours:
        who = f"{claim.rival} has no" if claim.rival else "No other method has"
    else:
        who = f"{OURS} has no" if theirs else "Neither side has"
    return f"{who} runs under the protocol yet."


def judge(claim: str, found: Sequence[Contest], unmade: int = 0, lacking: str = NOTHING) -> Verdict:
    """Judge a claim by its comparisons.

    Args:
        claim: The claim.
        found: The comparisons; in each, a negative difference is in favour of the claim.
        unmade: How many comparisons are still missing for which both methods get enough runs to decide.
        lacking: What is missing if there is no comparison at all, as a sentence.
    """
    word, reason = _judged(found, unmade) if found else ("undecided", lacking)
    return Verdict(claim, word, reason, tuple(found))


def _judged(found: Sequence[Contest], unmade: int) -> tuple[Word, str]:
    able = [each for each in found if each.decisive is not None and each.decisive.p is not None]
    decisive = [each.decisive for each in able if each.decisive is not None]
    counted, left = _counted(found), f" {_number(unmade)} still to be made." if unmade else ""
    if not decisive:
        none = f"None can decide: each has fewer than {LEAST} pairs of runs or is a trade-off."
        return "undecided", f"{counted} {none}{left}"
    planned = max(len(decisive), sum(each.seeds >= LEAST for each in found) + unmade)
    values = holm([each.p for each in decisive if each.p is not None] + [1.0] * (planned - len(decisive)))
    means = [each.mean for each in decisive]
    sure = [(one, mean) for one, mean, value in zip(able, means, values, strict=False) if value < 1 - LEVEL]
    better, worse = ([one for one, mean in sure if mean * sign > 0] for sign in (-1, 1))
    points = [each.mean for each, one in zip(decisive, able, strict=True) if one.basis != "equal error"]
    ends = list(dict.fromkeys(f"{end(points):+.2f}" for end in (min, max))) if points else []
    by = [f"mean difference{'s' * (len(ends) > 1)} {' to '.join(ends)} points"] if points else []
    if len(points) < len(means):
        by.append(f"{len(means) - len(points)} by size at an equal error")
    have = "has" if len(decisive) == 1 else "have"
    reason = (
        f"{counted} {_number(len(decisive))} {have} enough runs to decide: {', '.join(by)}. Beyond chance at "
        f"{100 * (1 - LEVEL):.0f} %, after Holm's correction for {planned} planned: {_named(better)} for the claim, "
        f"{_named(worse)} against it.{left}"
    )
    return _word(len(better), len(worse), planned), reason


def _named(contests: Sequence[Contest]) -> str:
    """How many, and which: where, and against which method."""
    which = "; ".join(f"{each.where}, {each.rival}" for each in contests)
    return f"{len(contests)} ({which})" if which else "0"


def _counted(found: Sequence[Contest]) -> str:
    """In how many comparisons ours has the lower error and, unless they are made at one size, the smaller network."""
    lower = sum(each.error.mean < 0 for each in found)
    sizes = [each.size.mean for each in found if each.size is not None and each.basis != ONE_SIZE]
    of = f" of {len(sizes)} that are not made at one size" if len(sizes) < len(found) else ""
    smaller = f" and the smaller network in {sum(size > 0 for size in sizes)}{of}" if sizes else ""
    return f"{OURS} has the lower mean error in {lower} of {_number(len(found))}{smaller}."


def _word(better: int, worse: int, planned: int) -> Word:
    """The verdict, from the comparisons that are beyond chance for and against a claim, and those that are planned."""
    if better and worse:
        return "mixed"
    if worse:
        return "contradicted" if worse >= planned else "contradicted in part"
    if better:
        return "holds" if better >= planned else "holds in part"
    return "no difference beyond chance"


def _number(count: int) -> str:
    return f"{count} comparison" + ("" if count == 1 else "s")
