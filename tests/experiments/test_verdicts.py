"""Verdicts on claims, from comparisons with known differences."""

import pytest

from vbdrop.experiments import Book, protocol_of, table
from vbdrop.experiments.paired import paired
from vbdrop.experiments.verdicts import judge, with_the_best
from vbdrop.experiments.versus import Contest, contests


def contest(*gaps, decides=True, seeds=3):
    error = paired(dict(enumerate(gaps)), dict.fromkeys(range(len(gaps)), 0.0))
    decisive, basis = (error, "error") if decides else (None, "trade-off")
    return Contest("Table 3", "VBD", "VD", error, None, decisive, basis, seeds)


BETTER, WORSE, EVEN = (-0.30, -0.31, -0.29), (0.30, 0.31, 0.29), (-0.3, 0.3, 0.05)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ([], "undecided"),
        ([contest(-5.0)], "undecided"),
        ([contest(*BETTER, decides=False)], "undecided"),
        ([contest(*BETTER), contest(*BETTER)], "holds"),
        ([contest(*BETTER), contest(*EVEN)], "holds in part"),
        ([contest(*BETTER), contest(-0.3)], "holds in part"),
        ([contest(*BETTER), contest(0.1, seeds=1)], "holds"),
        ([contest(*EVEN)], "no difference beyond chance"),
        ([contest(*BETTER), contest(*WORSE)], "contradicted"),
    ],
)
def test_the_word_follows_from_the_comparisons(found, word):
    assert judge("A claim.", found).word == word


def test_a_claim_does_not_hold_before_all_its_comparisons_have_been_made():
    found = judge("A claim.", [contest(*BETTER)], unmade=2)
    assert found.word == "holds in part"
    assert found.reason.endswith("2 comparisons still to be made.")


def test_many_comparisons_need_stronger_evidence():
    weak = contest(-0.30, -0.40, -0.20)
    assert weak.error.p == pytest.approx(0.0351, abs=1e-4)
    assert judge("A claim.", [weak]).word == "holds"
    assert judge("A claim.", [weak, weak]).word == "no difference beyond chance"


def test_too_few_runs_are_said_to_be_too_few():
    said = judge("A claim.", [contest(-5.0), contest(-4.0, -4.1)])
    assert said.reason == (
        "Ours has the lower mean error in 2 of 2 comparisons. "
        "n is too small: none has 3 pairs of runs and no trade-off."
    )


def test_the_best_of_the_others_is_compared_too(tmp_path, write_record, write_trials):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    errors = {"bernoulli": 14.0, "gaussian-noise": 13.5, "concrete": 13.0, "sadd": 15.0, "vadd": 15.5, "vbd": 12.0}
    for row, error in errors.items():
        assert len(book.cell(row, "1").finals) == (3 if row == "vbd" else 1)
        write_trials(book, row, "1", [{"error": error + k} for k in range(8)])
    assert {row: len(book.cell(row, "1").finals) for row in errors} == dict.fromkeys(errors, 1) | {
        "concrete": 3, "vbd": 3,
    }  # fmt: skip
    for row in errors:
        for config in book.cell(row, "1").finals:
            write_record(config, error=errors[row] + 0.1)
    whole = table(book)
    found = {each.rival: each.error.n for each in contests(whole, with_the_best(whole))}
    assert (found.pop("Concrete dropout"), set(found.values()), len(found)) == (3, {1}, 4)
