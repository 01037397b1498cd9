"""Calibration, against the record."""

from vbdrop.report.calibration import calibration


def test_a_dot_for_every_group_of_predictions(run):
    vbd = run("vbd")
    (figure,) = calibration([vbd], ["a"])
    assert f"in {len(vbd.details['calibration'])} bins" in figure.svg
    assert f"The calibration error is {100 * vbd.result['ece']:.2f} %" in figure.caption
    most = max(vbd.details["calibration"], key=lambda each: each["count"])
    assert f"of the {most['count']:,} most confident" in figure.caption


def test_without_bins_the_figure_is_still_said(run):
    (note,) = calibration([run("vbd", without=["details.json"])], ["a"])
    assert "The calibration error is" in note.text
    assert note.commands
