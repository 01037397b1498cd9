"""Sentences with the figures of the records."""

from dataclasses import replace
from pathlib import Path

import pytest
from tools.pages.findings import (
    _at_equal_size,
    equal_settings,
    findings,
    headline,
    missing,
    seed_spread,
    status,
)

from vbdrop.experiments import Book, protocol_of, table
from vbdrop.experiments.tables import stat


def test_without_records_nothing_is_claimed():
    assert findings(Path("no/such/folder")) == "Nothing has been recorded yet.\n"
    assert "Table 3: 9 of 9 cells have not been run." in missing(Path("no/such/folder"))
    assert "Ablations: " in missing(Path("no/such/folder"))
    assert " 0 have numbers" in status(Path("no/such/folder"))


def test_the_status_tells_settings_that_were_chosen_from_defaults(tmp_path, write_record):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    for config in (*book.cell("none", "1").finals, *book.cell("vbd", "1").finals):
        write_record(config)
    said = "1 with settings chosen on validation data, or with nothing to choose, 1 with settings that may change"
    assert f"have numbers: {said}" in status(tmp_path)
    assert "7 of 9 cells have not been run; 1 has settings that may change." in missing(tmp_path)
    assert "The lowest" in findings(tmp_path)


def test_one_method_is_not_the_lowest_of_several(tmp_path, write_record):
    write_record(Book(protocol_of(3), tmp_path, {"svhn": "ab"}).cell("vbd", "1").finals[0])
    assert "SVHN" in findings(tmp_path)
    assert "The lowest" not in findings(tmp_path)


def test_the_numbers_are_those_of_the_records_and_of_the_paper(vbd, tmp_path):
    said = "96 times fewer weights at 1.70 % (n = 1), settings that may change; the paper has 81 times at 1.76 %."
    assert said in findings(tmp_path)


@pytest.fixture
def vbd(tmp_path, write_record):
    """The cell of VBD in Table 4, with one run."""
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    write_record(book.cell("vbd", "lenet-300-100").finals[0], error=1.7, ratio=96.2)
    return table(book).cell("vbd", "lenet-300-100")


@pytest.fixture
def svhn(tmp_path, write_record, write_trials):
    """VBD and the plain network with three seeds each."""
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    write_trials(book, "vbd", "1", [{"error": 2.0}] * 8)
    for row in ("none", "vbd"):
        for config in book.cell(row, "1").finals:
            write_record(config, error=3.0 if row == "none" else 2.5)
    return book


def test_single_runs_rank_nothing(svhn, tmp_path, write_record):
    text = findings(tmp_path)
    assert "The lowest of 2 methods is VBD, with 2.50 ± 0.00 % (n = 3)." in text
    assert "single runs" not in text
    write_record(svhn.cell("bernoulli", "1").finals[0], error=2.2)
    text = findings(tmp_path)
    assert "The lowest of 3 methods is Dropout, Bernoulli, with 2.20 % (n = 1)." in text
    assert "a standard deviation of 0.00 points on this network (4 degrees of freedom)" in text
    write_record(svhn.cell("none", "1").finals[2], error=3.74)
    text = findings(tmp_path)
    assert "a standard deviation of 0.30 points on this network (4 degrees of freedom), so two single" in text
    assert "runs that are less than 1.19 points apart rank nothing." in text


def test_a_spread_that_was_not_measured_is_said_not_to_be(tmp_path, write_record):
    column = protocol_of(3).column("1")
    own = Book(protocol_of(3), tmp_path, {"svhn": "ab"}).cell("none", "1").finals
    for index, config in enumerate(own):
        write_record(replace(config, arithmetic="kernels"), error=3.0 + index)
    write_record(own[0], error=3.0)
    assert seed_spread(column, tmp_path).startswith("How much the seeds of one setting differ was not measured")
    write_record(replace(own[1], n_valid=5000), error=9.0)  # a trial
    write_record(own[1], error=3.5)
    assert "deviation of 0.35 points on this network (1 degree" in seed_spread(column, tmp_path)
    assert "not measured" in seed_spread(protocol_of(2).column("1"), tmp_path)


def test_trials_of_vbd_and_vd_are_compared_at_equal_settings(tmp_path, write_record):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    assert equal_settings(tmp_path) == []
    for row, worse in (("vbd", 0.0), ("vd", 0.2)):
        for trial in book.cell(row, "340").trials:
            strong = trial.hyper["kl_weight"] == 1.0
            if trial.hyper["per"] == "weight" or row == "vd":
                write_record(trial.runs[0], error=2.0 + (worse if strong else -worse))
    (said,) = equal_settings(tmp_path)
    assert "weight of 0.1, VBD has the lower validation error in 0 of 2 (+0.20 to +0.20 points);" in said
    assert "weight of 1, VBD has the lower validation error in 2 of 2 (-0.20 to -0.20 points)" in said


def test_the_headline_has_the_main_figures_and_their_runs(svhn, tmp_path, write_record, write_trials):
    assert headline(tmp_path) == ""  # VD has none
    write_trials(svhn, "vd", "1", [{"error": 2.0}] * 8)
    write_record(svhn.cell("vd", "1").finals[0], error=2.75)
    said = headline(tmp_path)
    assert said == "Test errors of VBD / VD / no dropout: SVHN, Kingma's network 2.50 / 2.75 / 3.00 % (n = 3 / 1 / 3)."


def test_older_runs_are_in_no_sentence_with_others_and_rank_nothing(svhn, tmp_path, write_record):
    for row in ("vd", "concrete"):
        own = svhn.cell(row, "1").finals[0]
        write_record(replace(own, arithmetic="kernels", budget=replace(own.budget, epochs=7)), error=1.5)
    text = findings(tmp_path)
    assert "Older runs, which nothing here is compared with: VD 1.50 % (n = 1, 7 epochs) †, the paper 19.74 %." in text
    assert "Concrete" not in text
    assert "The lowest" not in text
    assert "Of the 2 rows of the paper with current runs, 2 have a lower error here." in text
    for line in text.split(". "):
        assert not ("†" in line and ("VBD" in line or "No dropout" in line))


def test_adversarial_dropout_is_one_row_of_the_paper(svhn, tmp_path, write_record):
    for row, error in (("sadd", 15.0), ("vadd", 20.0)):
        write_record(svhn.cell(row, "1").finals[0], error=error)
    assert "Of the 3 rows of the paper with current runs, 2 have a lower error here." in findings(tmp_path)


def test_the_plain_network_has_its_mark_too(tmp_path, write_record):
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    for row in ("original", "vbd"):
        write_record(replace(book.cell(row, "lenet-5").finals[0], arithmetic="kernels"))
    assert "The original network has 2.00 % (n = 1) †." in findings(tmp_path)


@pytest.mark.parametrize(("older", "mark"), [(False, ""), (True, " †")])
def test_two_methods_are_compared_where_they_have_the_same_size(vbd, older, mark):
    def cell(ratio, *curve):
        return replace(vbd, ours=replace(vbd.ours, ratio=stat([ratio])), curves=(curve,), older=older)

    ours, rival = cell(90.0, (90.0, 1.0), (1000.0, 3.0)), cell(100.0, (100.0, 1.5), (1000.0, 4.0))
    (said,) = _at_equal_size(ours, rival)
    assert said.startswith("Cut by the threshold to 100 times fewer weights")
    assert said.endswith(f"%{mark} and sparse VD 1.50 %{mark} (n = 1 and 1).")
    assert _at_equal_size(ours, cell(200.0, (200.0, 1.5))) == []  # too far apart
    assert _at_equal_size(ours, replace(rival, curves=())) == []
    assert _at_equal_size(ours, replace(rival, older=not older)) == []
