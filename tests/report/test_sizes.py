"""Error against size: the curve, the slider and the frontier."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vbdrop.report.sizes import frontier, sizes


def test_the_slider_has_every_point_and_starts_where_the_run_was_trained(run):
    vbd = run("vbd")
    (slider,) = sizes([vbd], ["a"])
    kept = [point for point in vbd.details["sweep"] if point["nonzero"]]
    assert [point["threshold"] for point in slider.points] == [f"{point['threshold']:g}" for point in kept]
    start = slider.points[slider.start]
    assert (start["threshold"], start["error"]) == ("3", f"{vbd.result['error']:.2f} %")
    assert start["weights"] == f"{vbd.result['nonzero']:,}"
    marker = re.search(r'class="marker" cx="([\d.]+)" cy="([\d.]+)"', slider.svg)
    assert (float(marker[1]), float(marker[2])) == (start["x"], start["y"])
    box = [float(number) for number in re.search(r'viewBox="([^"]+)"', slider.svg)[1].split()]
    assert all(0 < point["x"] < box[2] and 0 < point["y"] < box[3] for point in slider.points)
    assert all(a["x"] <= b["x"] for a, b in pairwise(slider.points))


def test_several_runs_have_a_frontier(run):
    figure, slider, none = sizes([run("vbd"), run("plain")], ["a", "b"])
    assert figure.wide
    assert "a: " in figure.caption
    assert "b: " in figure.caption
    assert slider.kind == "slider"
    assert none.text == "plain has no threshold to move."


def test_what_has_no_curve_says_why(run):
    rates = run("vbd")
    rates.details["sweep"] = None
    assert "removes nothing" in sizes([rates], ["a"])[0].text
    empty = run("vbd")
    for point in empty.details["sweep"]:
        point["nonzero"] = 0
    assert "nothing is left" in sizes([empty], ["a"])[0].text
    perfect = run("vbd")
    for point in perfect.details["sweep"]:
        point["error"] = 0.0
    assert sizes([perfect], ["a"])[0].points[0]["error"] == "0.00 %"


points = st.tuples(st.integers(1, 50), st.integers(0, 50))


@given(st.lists(points, min_size=1, max_size=30))
def test_nothing_beats_a_point_of_the_frontier_and_every_other_is_beaten(every):
    best = frontier(every)

    def beaten(point):
        return any(o != point and o[0] <= point[0] and o[1] <= point[1] for o in every)

    assert best == sorted(point for point in set(every) if not beaten(point))
