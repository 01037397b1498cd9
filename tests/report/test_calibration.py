"""Calibration, against the record."""

from vbdrop.report.calibration import calibration


def test_a_dot_for_every_group_of_predictions(run):
    vbd = run("vbd")
    (figure,) = calibration([vbd], ["a"])
    assert f"in {len(vbd.details['calibration'])} bins" in figure.svg
    assert f"The calibration error is {100 * vbd.result['ece']:.2f} %" in figure.caption
    most = vbd.details["calibration"][-1]
    assert f"of the {most['count']:,} most confident" in figure.caption


def test_the_most_confident_predictions_are_not_the_largest_group(run):
    bins = [
        {"count": 900, "confidence": 0.3, "accuracy": 0.25},
        {"count": 20, "confidence": 0.99, "accuracy": 0.95},
    ]
    (figure,) = calibration([run("vbd", details={"calibration": bins})], ["a"])
    assert (
        "of the 20 most confident predictions, with a mean confidence of 99.0 %, 95.0 % are correct" in figure.caption
    )


def test_without_bins_the_figure_is_still_said(run):
    (note,) = calibration([run("vbd", without=["details.json"])], ["a"])
    assert "The calibration error is" in note.text
    assert note.commands
