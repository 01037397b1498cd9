"""The command of every run."""

import json

from vbdrop.report.reproduce import reproduce
from vbdrop.report.wording import command


def test_a_command_a_run_and_the_settings_that_it_reads(run):
    runs = [run("vbd"), run("plain")]
    notes = reproduce(runs, ["a", "b"])
    assert [note.commands[0] for note in notes] == [command(each) for each in runs]
    assert [json.loads(note.commands[1]) for note in notes] == [each.config for each in runs]
    assert all(each.id in note.text for each, note in zip(runs, notes, strict=True))
