"""What stands below a table."""

from dataclasses import replace
from pathlib import Path

import pytest

from vbdrop.experiments import Book, ablations, protocol_of, table
from vbdrop.experiments.table_notes import SCHEDULES, mark_notes, number_notes, protocol_notes
from vbdrop.experiments.table_text import notes
from vbdrop.train.schedules import SCHEDULES as KNOWN


def unrun(number, **part):
    return table(Book(protocol_of(number), Path("none")), **part)


@pytest.fixture
def book(tmp_path, write_record, write_trials):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    write_trials(book, "vbd", "340", [{"error": error} for error in (1.7, 1.9, 1.8, 2.0, 2.1, 2.2, 2.3, 2.4)])
    write_record(book.cell("vbd", "340").finals[0])
    return book


def test_the_protocol_is_that_of_the_column_on_which_settings_are_chosen():
    first, others = protocol_notes(unrun(1))
    assert first == (
        "340 units: MNIST, 50 epochs, batches of 100, Adam 0.001 (constant for half of the run, then falling linearly "
        "to 0). Settings are chosen in trials of 25 epochs, trained without the 5,000 validation examples, at most 8 "
        "settings per method."
    )
    assert others == "100 units, 580 units, 820 units, 1060 units: as 340 units, with the settings chosen there."
    alone = protocol_notes(unrun(1, columns=["580"]))
    assert alone == [first, "580 units: as 340 units, with the settings chosen there."]


def test_columns_with_other_epochs_are_not_compared():
    said = protocol_notes(unrun(2))
    assert "so the better half is tried again with 30 epochs and one seed, and these runs alone decide." in said[0]
    assert said[1] == (
        "scale 1.5, scale 2: 10 epochs, otherwise as scale 1, with the settings that its trials of 10 epochs choose, "
        "with two seeds for the better half."
    )
    warning = "Columns with different epochs must not be compared."
    assert [warning in protocol_notes(unrun(number)) for number in range(1, 6)] == [False, True, False, False, False]
    assert warning not in protocol_notes(unrun(2, columns=["1"]))


def test_neighbours_are_held_out_of_svhn_and_ablations_choose_nothing():
    held_out = "trained without the 5,000 validation examples (100 neighbours at a time), at most 8"
    assert held_out in protocol_notes(unrun(3))[0]
    said = protocol_notes(table(Book(ablations(), Path("none"))))
    assert said[0].endswith("falling linearly to 0). Trained without the 5,000 validation examples.")
    assert "MNIST, 30 epochs, batches of 100, Adam 0.001 (falling linearly to 0)." in said[1]


def test_every_schedule_is_described():
    assert set(SCHEDULES) == set(KNOWN)
    assert KNOWN["late-linear"](0.4) == KNOWN["late-linear"](0.5) == 1.0
    assert KNOWN["late-linear"](0.75) == KNOWN["linear"](0.5) == 0.5


def test_one_row_of_the_paper_stands_beside_two():
    said = "The paper does not say which adversarial dropout it ran; its number stands beside both."
    assert [said in protocol_notes(unrun(number)) for number in (1, 2, 3, 4)] == [False, True, True, False]


def test_the_protocol_is_not_that_of_older_cells(book, write_record):
    own = book.cell("concrete", "340").finals[0]
    older = replace(own, arithmetic="kernels", budget=replace(own.budget, epochs=7))
    assert not any("†" in note for note in notes(table(book)))
    edge = "‡ The chosen value is an end of what was tried: a better one may lie beyond it."
    assert mark_notes(table(book)) == [edge, "Made on Abacus 9, torch 2.13.0, 1 thread. PyTorch formulas."]
    write_record(older)
    whole = table(Book(book.protocol, book.records, {"mnist": "ab"}))
    assert all(" units (cells without †): " in note for note in protocol_notes(whole))
    assert mark_notes(whole) == [
        edge,
        "† Older runs, with other arithmetic, some with other settings, and with the epochs given instead of the "
        "column's; not comparable with cells without †.",
        "Made on Abacus 9, torch 2.13.0, 1 thread. Without †: PyTorch formulas. †: compiled kernels.",
    ]


def test_the_choice_is_explained_where_something_was_chosen(book):
    text = " ".join(number_notes(table(book)))
    assert "the better half, except for those clearly worse" in text
    assert "Runner-up minus chosen: if it is negative, the two are too close to tell apart" in text
    assert "chose" not in " ".join(number_notes(table(book, columns=["580"], rows=["none"])))
    quick = table(Book(protocol_of(2, quick=True), Path("none")))
    assert "Quick" not in text
    assert "numbers only show that everything runs" in number_notes(quick)[0]


def test_a_runner_up_that_is_larger_needs_no_excuse(tmp_path, write_trials):
    book = Book(protocol_of(4), tmp_path, {"mnist": "ab"})
    write_trials(book, "vbd", "lenet-300-100", [{"error": 2.0, "nonzero": 1000}] * 6)
    text = " ".join(number_notes(table(book)))
    assert "Bisection" in text
    assert "Runner-up minus chosen" not in text


def test_the_notes_say_who_shrinks_while_it_trains(book):
    assert not any("--shrink-every" in note for note in notes(table(book)))
    (said,) = [note for note in notes(unrun(5)) if "--shrink-every" in note]
    assert said.startswith("Sparse VD and VBD lose their dead units every 2 epochs")
