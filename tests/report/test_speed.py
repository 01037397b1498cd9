"""Latency and bytes, against what was measured."""

from vbdrop.report.speed import speed


def test_every_way_to_run_it_and_what_could_not_be_measured(run):
    vbd = run("vbd")
    figure, grid = speed([vbd], ["a"])
    original, small = vbd.measured["rows"]
    assert grid.header == ("", "File", "smaller", "Batch of 1", "faster", "Batch of 64", "faster")
    assert grid.rows[0][2::2] == ("1.0×", "1.0×", "1.0×")
    assert grid.rows[1][2] == f"{original['bytes'] / small['bytes']:,.1f}×"
    assert grid.rows[1][4] == f"{original['microseconds']['1'] / small['microseconds']['1']:,.1f}×"
    assert grid.rows[2][:2] == ("small, C", "not measured: there is no C compiler on the PATH")
    assert {len(row) for row in grid.rows} == {7}
    assert "small, PyTorch" in figure.svg


def test_what_was_not_measured_says_how_to(run):
    (note,) = speed([run("vbd", without=["measured.json"])], ["a"])
    assert note.commands[0].endswith("--measure")
    (none,) = speed([run("plain")], ["a"])
    assert (none.text.startswith("Nothing was removed"), none.commands) == (True, ())
