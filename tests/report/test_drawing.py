"""Figures as the page needs them."""

import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import pytest

from vbdrop.report.drawing import INK, SERIES, Canvas, log_ticks, style


def drawn():
    canvas = Canvas(2.0)
    canvas.axes[0].plot([1, 2, 3], [4, 5, 6], color=SERIES[0], label="a < b & c $x$")
    canvas.axes[0].axvline(2, color=INK)
    canvas.axes[0].legend()
    return canvas


def test_it_is_well_formed_labelled_and_has_the_colours_of_the_page():
    svg = drawn().svg('"two" <lines>')
    root = ET.fromstring(svg.replace("xlink:href", "href"))
    assert root.get("role") == "img"
    assert root.get("aria-label") == '"two" <lines>'
    assert "var(--series-1)" in svg
    assert "var(--ink)" in svg
    assert not re.search(r"#0[ab]0[ab]0\d", svg), "a stand-in colour is left"
    assert "DejaVu" not in svg
    assert "a < b & c $x$" in "".join(root.itertext()), "text stays text, and is no mathematics"


def test_two_figures_share_no_name_and_the_same_one_is_the_same():
    first, second = drawn().svg("one"), drawn().svg("two")
    names = [set(re.findall(r'\bid="([^"]+)"', svg)) for svg in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    used = set(re.findall(r"url\(#([^)]+)\)", first)) | set(re.findall(r'href="#([^"]+)"', first))
    assert used == names[0]
    assert drawn().svg("one") == first


def test_a_place_is_where_the_line_is():
    canvas = Canvas(2.0)
    axes = canvas.axes[0]
    axes.plot([1, 3], [10, 20])
    left, middle, right = canvas.places(axes, [(1, 10), (2, 15), (3, 20)])
    assert left[0] < right[0]
    assert left[1] > right[1], "up is less in SVG"
    assert middle == pytest.approx([(left[0] + right[0]) / 2, (left[1] + right[1]) / 2], abs=0.02)


def test_the_settings_of_the_process_are_left_alone():
    with mpl.rc_context(mpl.rcParamsDefault):
        with style():
            assert mpl.rcParams["text.parse_math"] is False
        assert mpl.rcParams["text.parse_math"] is True


def test_ticks_of_a_logarithmic_axis_are_plain_numbers():
    canvas = Canvas(2.0)
    axes = canvas.axes[0]
    axes.plot([1000, 10_000], [1, 2])
    axes.set_xscale("log")
    log_ticks(axes, [1000, 10_000], "x")
    canvas.figure.draw_without_rendering()
    assert "2,000" in [label.get_text() for label in axes.get_xticklabels()]
