"""Recorded runs that a table does not ask for."""

from dataclasses import replace

import pytest

from vbdrop.experiments import Book, protocol_of
from vbdrop.experiments.older_runs import older_runs


@pytest.fixture
def book(tmp_path):
    return Book(protocol_of(4), tmp_path, {"mnist": "ab"})


def test_older_runs_are_shown_where_there_are_no_others_and_never_count(book, write_record):
    cell = book.cell("dns", "lenet-300-100")
    assert older_runs(book, cell) == []
    old = [replace(cell.finals[0], arithmetic="kernels", budget=replace(cell.finals[0].budget, seed=n)) for n in (0, 1)]
    other = replace(old[0], hyper={**old[0].hyper, "c_rate": 9.0})
    unlike = [replace(old[0], model="lenet-5"), replace(old[0], n_valid=5000), replace(old[0], n_train=100)]
    for config in (*old, other, *unlike):
        write_record(config)
    fresh = Book(book.protocol, book.records, {"mnist": "ab"})
    cell = fresh.cell("dns", "lenet-300-100")
    assert [record.folder.name for record in older_runs(fresh, cell)] == sorted(config.name for config in old)
    assert cell.results == ()
    assert older_runs(fresh, fresh.cell("rigl", "lenet-300-100")) == []
    for row in ("vbd", "vbd-low-error"):
        write_record(replace(fresh.cell(row, "lenet-300-100").finals[0], arithmetic="kernels"))
    fresh = Book(book.protocol, book.records, {"mnist": "ab"})
    assert len(older_runs(fresh, fresh.cell("vbd", "lenet-300-100"))) == 1
    assert older_runs(fresh, fresh.cell("vbd-low-error", "lenet-300-100")) == []  # what sets it apart was not chosen


@pytest.mark.parametrize(
    ("number", "row", "column", "other"),
    [
        (5, "vbd", "lenet-5", {"weighting": "positions"}),  # VIBNet's
        (1, "vd-kingma", "340", {"noise": "a"}),
        (1, "vd-kingma", "340", {"per": "unit"}),
    ],
)
def test_older_runs_of_another_method_in_one_class_fill_no_row(number, row, column, other, tmp_path, write_record):
    book = Book(protocol_of(number), tmp_path, {"mnist": "ab"})
    old = replace(book.cell(row, column).finals[0], arithmetic="kernels")
    write_record(replace(old, hyper={**old.hyper, **other}))
    assert older_runs(book, book.cell(row, column)) == []
    own = write_record(replace(old, hyper={**old.hyper, "kl_weight": 7.0}))
    again = Book(book.protocol, tmp_path, {"mnist": "ab"})
    assert [record.folder for record in older_runs(again, again.cell(row, column))] == [own.folder]


def test_an_older_run_may_have_any_value_that_is_chosen_for_its_row(tmp_path, write_record):
    book = Book(protocol_of(1), tmp_path, {"mnist": "ab"})
    old = replace(book.cell("vbd", "340").finals[0], arithmetic="kernels")
    write_record(replace(old, hyper={**old.hyper, "per": "unit"}))
    assert len(older_runs(book, book.cell("vbd", "340"))) == 1
