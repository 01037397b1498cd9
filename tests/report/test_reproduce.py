"""The command of every run."""

import json

from vbdrop.report.reproduce import reproduce
from vbdrop.report.wording import command


def test_a_command_a_run(run):
    runs = [run("vbd"), run("plain")]
    notes = reproduce(runs, ["a", "b"])
    assert [note.commands for note in notes] == [(command(each),) for each in runs]
    assert all(each.id in note.text for each, note in zip(runs, notes, strict=True))


def test_the_settings_stand_on_the_page_where_the_command_reads_them(run):
    vbd = run("vbd", config={"budget": {**run("vbd").config["budget"], "evaluate_every": 2}})
    (note,) = reproduce([vbd], ["a"])
    assert json.loads(note.commands[1]) == vbd.config
