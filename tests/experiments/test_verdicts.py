"""Verdicts on claims, from comparisons with known differences."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from vbdrop.experiments import PROTOCOLS, Book, protocol_of, table
from vbdrop.experiments.paired import LEVEL, paired, t_quantile
from vbdrop.experiments.verdicts import CLAIMS, judge, verdicts, with_the_best
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
        ([contest(*BETTER), contest(*WORSE)], "mixed"),
        ([contest(*WORSE), contest(*WORSE)], "contradicted"),
        ([contest(*WORSE), contest(*EVEN)], "contradicted in part"),
        ([contest(*WORSE), contest(0.3)], "contradicted in part"),
        ([contest(*WORSE), contest(-0.1, seeds=1)], "contradicted"),
    ],
)
def test_the_word_follows_from_the_comparisons(found, word):
    assert judge("A claim.", found).word == word


def test_a_claim_does_not_hold_before_all_its_comparisons_have_been_made():
    found = judge("A claim.", [contest(*BETTER)], unmade=2)
    assert found.word == "holds in part"
    assert found.reason.endswith("2 comparisons still to be made.")


def test_a_smaller_network_at_an_equal_error_is_no_difference_in_points():
    smaller = replace(contest(0.01, 0.0, 0.02), decisive=contest(-1.0, -1.01, -0.99).error, basis="equal error")
    found = judge("A claim.", [smaller])
    assert found.word == "holds"
    assert "1 comparison has enough runs to decide: 1 by size at an equal error. Beyond chance" in found.reason
    both = judge("A claim.", [smaller, contest(*BETTER)]).reason
    said = "2 comparisons have enough runs to decide: mean difference -0.30 points, 1 by size at an equal error. Beyond"
    assert said in both


def test_many_comparisons_need_stronger_evidence():
    weak = contest(-0.30, -0.40, -0.20)
    assert weak.error.p == pytest.approx(0.0351, abs=1e-4)
    assert judge("A claim.", [weak]).word == "holds"
    assert judge("A claim.", [weak, weak]).word == "no difference beyond chance"
    assert judge("A claim.", [weak], unmade=1).word == "no difference beyond chance"  # as it will be in the end


def test_too_few_runs_are_said_to_be_too_few():
    said = judge("A claim.", [contest(-5.0), contest(-4.0, -4.1)])
    assert said.reason == (
        "VBD has the lower mean error in 2 of 2 comparisons. "
        "None can decide: each has fewer than 3 pairs of runs or is a trade-off."
    )


def test_sizes_are_counted_where_they_differ():
    larger, smaller = (replace(contest(0.1), size=paired({0: size}, {0: 0.0})) for size in (-0.5, 0.5))
    said = judge("A claim.", [larger, smaller, smaller]).reason
    assert said.startswith("VBD has the lower mean error in 0 of 3 comparisons and the smaller network in 2. None")
    said = judge("A claim.", [larger, smaller, replace(smaller, basis="one size")]).reason
    assert "and the smaller network in 1 of 2 that are not made at one size." in said


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


def test_smaller_networks_are_compared_with_rows_that_are_tuned_alike():
    rivals = {
        number: {(ours.row.key, other.row.key) for ours, other in with_the_best(unrun(number))} for number in (4, 5)
    }
    assert rivals[4] == {("vbd", other) for other in ("pruning", "dns", "sws", "vd")}
    assert rivals[5] == {("vbd", other) for other in ("vd", "ssl", "sbp")}
    assert ("vbd", "none") in {(ours.row.key, other.row.key) for ours, other in with_the_best(unrun(3))}


def unrun(number):
    return table(Book(protocol_of(number), Path("none")))


def test_the_side_that_is_missing_is_named(tmp_path, write_record, write_trials):
    def said():
        tables = {number: table(Book(each, tmp_path, {"mnist": "ab"})) for number, each in PROTOCOLS.items()}
        return {claim.text: verdict.reason for claim, verdict in zip(CLAIMS, verdicts(tables), strict=True)}

    assert set(said().values()) == {"Neither side has runs under the protocol yet."}
    book = Book(protocol_of(5), tmp_path, {"mnist": "ab"})
    write_trials(book, "vbd", "lenet-500-300", [{"error": 2.0}] * 6)
    write_record(book.cell("vbd", "lenet-500-300").finals[0])
    assert said()[CLAIMS[4].text] == "Sparse VD has no runs under the protocol yet."
    assert said()[CLAIMS[5].text] == "No other method has runs under the protocol yet."
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    write_record(book.cell("none", "340").finals[0])
    assert said()[CLAIMS[1].text] == "VBD has no runs under the protocol yet."
    assert said()[CLAIMS[0].text] == "Neither side has runs under the protocol yet."


@pytest.mark.parametrize(("comparisons", "deviations"), [(1, 2.5), (3, 4.4), (7, 6.8)])
def test_the_page_says_what_three_pairs_can_see(comparisons, deviations):
    share = 1 - (1 - LEVEL) / comparisons / 2
    assert t_quantile(share, 2) / math.sqrt(3) == pytest.approx(deviations, abs=0.05)
    page = " ".join((Path(__file__).parents[2] / "docs" / "results.md").read_text().split())
    assert f"{deviations} " in page[page.index("With three pairs") :][:250]
