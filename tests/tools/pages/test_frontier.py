"""The picture of error against compression, from records that were written by hand."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure
from tools.pages.frontier import FADED, Point, _draw_runs, frontier_of, points_of, published_points

from vbdrop.experiments import make_method, protocol_of, record_of, resolve

TABLE = protocol_of(4)
COLUMN = TABLE.column("lenet-300-100")


@pytest.fixture
def write(tmp_path):
    """Writes the record of a run of LeNet-300-100 that has ended."""

    def write(method, error, nonzero, *, seed=0, sweep=None, hyper=None, model=COLUMN.model, **others):
        method = make_method(method, hyper or {})
        of_budget = {name: others.pop(name) for name in ("epochs", "shrink_every") if name in others}
        budget = replace(COLUMN.budget_of(method, seed), **of_budget)
        settings = {"arithmetic": "plain", **others}
        config = resolve(method, model=model, data="mnist", checksum="ab", budget=budget, **settings)
        record = record_of(config, tmp_path)
        record.open(config)
        head = {"run": config.id, "outcome": "finished", "epochs": budget.epochs, "evaluated_on": config.evaluated_on}
        result = head | {"error": error, "weights": 1000, "nonzero": nonzero, "compact_weights": 2 * nonzero}
        counted = {
            "examples": 10_000,
            "wrong": round(100 * error),
            "nll": 0.1,
            "ece": 0.01,
            "layers": [],
            "units": None,
        }
        ratios = {
            name: 1000 / size if size else None for name, size in (("ratio", nonzero), ("compact_ratio", 2 * nonzero))
        }
        (record.folder / "result.json").write_text(json.dumps({**result, **counted, **ratios}))
        if sweep is not None:
            points = [
                {"threshold": -k, "own": k == 1, "weights": 1000, "nonzero": left, "error": error}
                for k, (left, error) in enumerate(sweep)
            ]
            (record.folder / "details.json").write_text(json.dumps({"sweep": points}))

    return write


def test_a_run_is_a_point_with_its_line(write, tmp_path):
    write("vbd-weights", 1.8, 20, sweep=[(40, 1.7), (20, 1.8), (10, 2.5), (0, 90.0)], hyper={"kl_weight": 2.0})
    write("sparse-vd", 1.9, 10, seed=2)
    vd, vbd = sorted(points_of(TABLE, COLUMN, tmp_path), key=lambda point: point.method)
    assert (vbd.method, vbd.ratio, vbd.error, vbd.setting) == ("VBD", 50.0, 1.8, "kl_weight = 2")
    assert vbd.curve == ((25.0, 1.7), (50.0, 1.8), (100.0, 2.5))
    assert (vd.method, vd.ratio, vd.seed, vd.curve) == ("Sparse VD", 100.0, 2, ())


def test_only_runs_on_test_data_with_the_budget_of_the_table_count(write, tmp_path):
    write("vbd-weights", 1.8, 20, n_valid=5000)
    write("vbd-weights", 1.8, 20, epochs=10)
    write("vbd-weights", 1.8, 20, n_train=1000)
    write("vbd-weights", 1.8, 20, normalise="standardised")
    write("bernoulli-dropout", 1.8, 1000)
    assert points_of(TABLE, COLUMN, tmp_path) == []
    said = frontier_of(4, "lenet-300-100", tmp_path)
    assert (
        said
        == "Of LeNet-300-100 no smaller network has been recorded: `vbdrop table 4 --run --column lenet-300-100`.\n"
    )


def test_runs_that_kept_their_dead_units_are_not_mixed_with_the_others(write, tmp_path):
    write("vbd-weights", 1.6, 20)
    write("vbd-weights", 2.0, 20, shrink_every=None)
    rows = [line for line in frontier_of(4, "lenet-300-100", tmp_path).splitlines() if line.startswith("| VBD")]
    assert rows == [
        "| VBD | kl_weight = 2 | 1.60 | 50x | 1 | – |",
        "| VBD | kl_weight = 2, shrink_every = None | 2.00 | 50x | 1 | – |",
    ]


def test_neurons_are_counted_by_the_weights_between_them(write, tmp_path):
    write("sparse-vd", 1.9, 10)
    structured = replace(protocol_of(5), columns=(COLUMN,))
    (point,) = points_of(structured, COLUMN, tmp_path)
    assert point.ratio == 50.0


def test_the_papers_points_leave_out_the_original():
    points = published_points(TABLE, COLUMN)
    assert ("VBD", 81, 1.76) in [(point.method, point.ratio, point.error) for point in points]
    assert all(point.ratio > 1 for point in points)


def test_the_figure_names_every_method_and_says_how_it_was_made(write, tmp_path):
    for seed in (0, 1):
        write("vbd-weights", 1.8 + seed / 10, 20, seed=seed, sweep=[(20, 1.8), (10, 2.5)], hyper={"kl_weight": 1.0})
    write("vbd-weights", 1.7, 25, n_valid=COLUMN.n_valid, hyper={"kl_weight": 1.0})
    write("plain", 1.5, 1000)
    figure = frontier_of(4, "lenet-300-100", tmp_path)
    label = re.search(r'aria-label="([^"]+)"', figure)[1]
    assert "VBD: 1.80 % with 50 times fewer weights; VBD: 1.90 %" in label
    assert "| VBD | kl_weight = 1 | 1.85 ± 0.07 | 50x | 2 | 1.70 %, 40x (n = 1) |" in figure.splitlines()
    assert "no threshold was chosen on the test data" in figure
    legend = re.findall(r"<text[^>]*>([^<]+)</text>", figure)
    assert {"VBD", "DNS", "hollow: the paper", "the original"} <= set(legend)
    assert legend.count("VBD") == 1
    assert "var(--series-1)" in figure
    assert "#0" not in re.sub(r"url\(#|href=\"#", "", figure)


def test_several_seeds_of_a_setting_have_bars_of_a_standard_deviation():
    axes = Figure().add_subplot()
    runs = [Point("VBD", plain=False, ratio=ratio, error=error) for ratio, error in ((90, 1.7), (100, 1.8), (110, 1.9))]
    _draw_runs(axes, runs, "black", "o", "VBD")
    ((_, _, (across, upright)),) = axes.containers
    assert across.get_segments()[0] == pytest.approx(np.array([[90, 1.8], [110, 1.8]]))
    assert upright.get_segments()[0] == pytest.approx(np.array([[100, 1.7], [100, 1.9]]))


def test_older_runs_are_faded_and_marked_and_stay_apart(write, tmp_path):
    write("vbd-weights", 1.6, 20)
    write("vbd-weights", 2.0, 20, arithmetic="kernels")
    write("vbd-weights", 2.1, 20, arithmetic="kernels", n_valid=COLUMN.n_valid)
    page = frontier_of(4, "lenet-300-100", tmp_path)
    assert [line for line in page.splitlines() if line.startswith("| VBD")] == [
        "| VBD | kl_weight = 2 | 1.60 | 50x | 1 | – |",
        "| VBD | kl_weight = 2 | 2.00 † | 50x | 1 | 2.10 %, 50x (n = 1) † |",
    ]
    assert "VBD: 2.00 % with 50 times fewer weights (older run)." in page
    assert "Faded marks (†) are older runs, made with compiled kernels; they decide nothing." in page
    axes = Figure().add_subplot()
    for older in (True, False):
        _draw_runs(axes, [Point("VBD", plain=False, ratio=9, error=1.7, older=older)], "black", "o", "VBD")
    assert [lines[0].get_alpha() for lines in axes.containers] == [FADED, 1.0]


def test_the_original_is_drawn_from_older_runs_only_if_there_are_no_others(write, tmp_path):
    def original():
        page = frontier_of(4, "lenet-300-100", tmp_path)
        return [text for text in re.findall(r"<text[^>]*>([^<]+)</text>", page) if "the original" in text], page

    write("vbd-weights", 1.6, 20)
    write("plain", 9.5, 1000, arithmetic="kernels")
    said, before = original()
    assert said == ["the original †"]
    write("plain", 1.5, 1000)
    said, after = original()
    assert said == ["the original"]
    assert ">9<" in before
    assert ">9<" not in after  # the axis no longer reaches the older one
    assert "Faded" not in after


def test_methods_with_one_objective_share_a_name(write, tmp_path):
    for hyper, error in (({}, 1.5), ({"weighting": "positions"}, 1.6)):
        write("vbd-gates", error, 20, hyper=hyper, model="lenet-500-300")
    page = frontier_of(5, "lenet-500-300", tmp_path)
    assert [line for line in page.splitlines() if line.startswith("| VBD")] == [
        "| VBD (gates) = VIBNet | kl_weight = 20 | 1.50 | 25x | 1 | – |",
        "| VBD (gates) = VIBNet | kl_weight = 20, weighting = positions | 1.60 | 25x | 1 | – |",
    ]
    names = {point.method for point in published_points(protocol_of(5), protocol_of(5).column("lenet-500-300"))}
    assert "VBD (gates) = VIBNet" in names
    assert "VBD" in {point.method for point in published_points(protocol_of(5), protocol_of(5).column("lenet-5"))}
