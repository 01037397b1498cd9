"""``vbdrop queue``."""

import re

import pytest

from vbdrop.experiments import Book, checksums, protocol_of


@pytest.fixture
def queue(vbdrop, tmp_path):
    return lambda *options: vbdrop("queue", "--quick", "--records", tmp_path / "runs", *options)


@pytest.fixture
def nearly_whole(tmp_path, write_record):
    """Table 3 with all of its runs but that of the plain network."""
    protocol = protocol_of(3, quick=True)
    book = Book(protocol, tmp_path / "runs", checksums(protocol))
    while rest := [config for config in book.missing() if config.method != "plain"]:
        for config in rest:
            write_record(config, book.records)
    return book


def test_it_makes_what_is_missing_and_says_what_was_gained(queue, nearly_whole):
    (left,) = nearly_whole.missing()
    none = queue("--table", "3", "--hours", "1e-9")
    assert none.code == 0
    assert "Table 3: 8 of 9 cells are filled, 0 more than before." in none.out
    made = queue("--table", "3")
    assert made.code == 0
    assert "Table 3: 9 of 9 cells are filled, 1 more than before." in made.out
    result = nearly_whole.result(left)
    assert f"  Table 3, none, 1: {result['error']:.2f} % (n = 1)" in made.out
    again = queue("--table", "3", "--json")
    assert (again.code, again.json) == (0, [])


def test_it_says_what_is_missing_and_what_comes_first(queue, nearly_whole):
    found = queue("--table", "3", "--cost")
    assert found.code == 0
    assert "First:\n  Table 3: plain on kingma-cnn(1), seed 0, " in found.out
    (row,) = (line for line in found.out.splitlines() if line.startswith(" Table 3 "))
    assert re.fullmatch(r"Table 3 +0 +0 s +1 +\d+ s", row.strip())
    (line,) = queue("--table", "3", "--cost", "--json").json
    assert (line["table"], line["trials"], line["runs"]) == ("Table 3", 0, 1)
    assert line["hours"] > line["trial_hours"] == 0


def test_a_run_of_two_tables_is_counted_once_and_steps_are_measured_once(queue, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = []
    monkeypatch.setattr("vbdrop.experiments.cost._measured", lambda config: (made.append(config.id), (0.01, 0.001))[1])
    alone = [queue("--table", n, "--cost", "--json").json[0] for n in ("4", "5")]
    count = len(made)
    both = queue("--table", "4", "--table", "5", "--cost", "--json").json
    assert both[0] == alone[0]
    assert both[1]["runs"] < alone[1]["runs"]
    assert len(made) == count > 0


def test_mistakes(queue):
    assert "`--hours` must be above 0; got 0" in queue("--hours", "0").err
    assert "1 to 5; got 7" in queue("--table", "7").err
