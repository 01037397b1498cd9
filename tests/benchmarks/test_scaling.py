import pytest
from benchmarks.scaling import BATCHES, WIDTHS, cases, curve, plot


def rows():
    found = []
    for case in cases(quick=False, threads=1):
        width = int(case["network"][2:])
        for variant, factor in (("plain", 1.0), ("vbdrop Weights", 2.0)):
            found.append({**case, "variant": variant, "ratio": factor * width, "memory_ratio": factor * case["batch"]})
    return found


def test_every_width_and_batch_is_measured_once():
    found = [(case["network"], case["batch"]) for case in cases(quick=False, threads=1)]
    assert len(found) == len(set(found)) == len(WIDTHS) + len(BATCHES) - 1
    assert {("2x64", 128), ("2x4096", 128), ("2x512", 16), ("2x512", 1024)} <= set(found)
    assert len(cases(quick=True, threads=1)) < len(found) / 2


def test_a_curve_has_the_points_at_which_only_one_size_changes():
    assert curve(rows(), "vbdrop Weights", "ratio", "width") == ([*WIDTHS], [2.0 * width for width in WIDTHS])
    assert curve(rows(), "plain", "memory_ratio", "batch") == ([*BATCHES], [float(batch) for batch in BATCHES])
    assert curve(rows(), "blitz", "ratio", "width") == ([], [])


def test_a_point_that_failed_is_left_out():
    broken = [row if row["network"] != "2x64" else {**row, "error": "killed"} for row in rows()]
    for row in broken:
        if "error" in row:
            del row["ratio"]
    assert curve(broken, "plain", "ratio", "width")[0] == [*WIDTHS[1:]]


def test_the_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    plot(rows(), tmp_path / "scaling.svg")
    drawn = (tmp_path / "scaling.svg").read_text()
    assert drawn.count("<path") > len(WIDTHS)
    assert "</svg>" in drawn
