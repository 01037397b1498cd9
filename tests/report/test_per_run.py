"""What is drawn of each run, in their order."""

from vbdrop.report.blocks import Note
from vbdrop.report.per_run import from_details


def drawn(runs, labels):
    return from_details(
        runs,
        labels,
        lambda run, details, heading: [Note(f"{len(details['masks'])} masks", heading=heading)],
        lambda run: f"nothing of {run.result['error']}",
    )


def test_runs_with_and_without_details_keep_their_order_and_headings(run):
    vbd, bare = run("vbd"), run("vbd", without=["details.json"])
    first, second = drawn([vbd, bare], ["a", "b"])
    assert (first.text, first.heading) == (f"{len(vbd.details['masks'])} masks", "a")
    assert (second.text, second.heading) == (f"nothing of {bare.result['error']}", "b")
    assert second.commands


def test_one_run_needs_no_heading(run):
    (note,) = drawn([run("vbd")], ["a"])
    assert note.heading == ""


def test_a_run_that_diverged_says_so(run):
    (note,) = drawn([run("vbd", without=["details.json"], result={"outcome": "diverged"})], ["a"])
    assert note.text == "The run diverged."
