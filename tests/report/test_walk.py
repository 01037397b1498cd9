"""The page of a run of `vbdrop.shrink`, in a real browser."""

import json
import re

import pytest
from tests.report.test_page import CONTRAST, OVERFLOW

from vbdrop.report import render_walk

COUNTS = {"weights": 600, "nonzeros": 600, "bytes": 2400, "macs": 4000}


def result(**changes):
    """The figures of a run of eight epochs."""
    sizes = [4000, 4000, 2000, 1000, 500, 400, 400, 400]
    stages = ["train", "train", *["press"] * 4, *["refine"] * 2]
    curve = [
        {"epoch": n + 1, "stage": stage, "size": size, "path": size * 1.1, "loss": 0.1, "error": 5 - n / 4,
         "kl_weight": 0.1 * n}
        for n, (stage, size) in enumerate(zip(stages, sizes, strict=True))
    ]  # fmt: skip
    walk = [{"step": n, "size": 4000 - n, "path": 4000 - n, "kl_weight": 0.01 * 1.1**n, "error": 0} for n in range(50)]
    cut = {"step": 480, "size_before": 420, "size": 400, "elements": 3, "nats": 0.123, "nats_per_example": 1e-5,
           "error_before": 3.5, "error": 3.75}  # fmt: skip
    kept = [
        {"file": f"small-{fewer:.1f}x.safetensors", "epoch": epoch, "size": 4000 / fewer, "times": fewer, "error": 4.5}
        for epoch, fewer in ((3, 2.0), (4, 4.0))
    ]
    layer = {"name": "hidden.<0>", "shape": [30, 20], "small_shape": [10, 12], "before": COUNTS,
             "after": COUNTS | {"macs": 400, "nonzeros": 120}}  # fmt: skip
    return {
        "target": "Target(macs=10)", "unit": "macs", "limit": 400.0, "before": 4000.0, "size": 400.0, "times": 10.0,
        "error_before": 4.75, "error": 3.25, "layers": [layer, layer | {"small_shape": None}], "curve": curve,
        "walk": walk, "cut": cut, "kept": kept, "file": "small.safetensors",
    } | changes  # fmt: skip


@pytest.mark.parametrize(("width", "scheme"), [(375, "dark"), (1280, "light")])
def test_it_opens_from_disk_quietly_and_nothing_overflows_or_is_faint(browser, tmp_path, width, scheme):
    path = tmp_path / "report.html"
    path.write_text(render_walk(result()))
    browser.open(path, width, scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requested() if not url.startswith("data:")] == [path.resolve().as_uri()]
    assert browser.run(OVERFLOW) == []
    assert browser.run(CONTRAST) == []


def test_the_slider_chooses_among_the_kept_models(browser, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(render_walk(result()))
    browser.open(path)
    shown = "[...document.querySelectorAll('[data-show]')].map(e => e.textContent)"
    browser.run("document.querySelector('input[type=range]').focus()")
    assert browser.run(shown) == ["small.safetensors", "3.25", "400 MACs", "10.0×"]
    browser.press("Home")
    assert browser.run(shown) == ["small-2.0x.safetensors", "4.5", "2,000 MACs", "2.0×"]
    label = browser.run("document.querySelector('input[type=range]').labels[0].textContent")
    assert label.startswith("File")


def test_without_errors_the_kept_models_are_a_table():
    kept = [one | {"error": None} for one in result()["kept"]]
    text = " ".join(re.sub(r"<[^>]+>", " ", render_walk(result(kept=kept, error=None))).split())
    assert "small-2.0x.safetensors 2,000 MACs 2.0× small-4.0x.safetensors 1,000 MACs 4.0× small.safetensors" in text


def test_models_without_files_are_called_by_their_epoch():
    kept = [{name: value for name, value in one.items() if name != "file"} for one in result()["kept"]]
    page = render_walk({name: value for name, value in result(kept=kept).items() if name != "file"})
    assert "epoch 3" in page
    assert "the result" in page


def test_its_figures_are_those_of_the_run():
    text = re.sub(r"<[^>]+>", " ", render_walk(result()))
    for said in ("400 MACs", "4,000 MACs before", "0.123 nats", "420 MACs to 400 MACs", "3.75", "90.0 %", "gone"):
        assert said in text, said
    assert "hidden.&lt;0&gt;" in text
    assert "from 0.01 to 1.07" in text


@pytest.mark.parametrize("unit", ["weights", "parameters", "bytes", "latency"])
def test_every_unit_has_a_page(unit):
    page = render_walk(json.loads(json.dumps(result(unit=unit, before=4e-3, size=4e-4, limit=None))))
    assert ("0.4 ms" in page) == (unit == "latency")


def test_what_was_not_measured_is_said():
    curve = [point | {"error": None} for point in result()["curve"]]
    page = render_walk(result(curve=curve, error=None, error_before=None, cut=None, walk=[]))
    for said in ("no error was measured", "The models that were kept", "No cut was recorded", "had no press stage"):
        assert said in page


def test_a_model_of_which_nothing_is_left_has_no_place_on_a_logarithmic_scale():
    text = " ".join(re.sub(r"<[^>]+>", " ", render_walk(result(unit="weights", size=0.0))).split())
    assert "Target(macs=10): all gone" in text
    assert "small.safetensors 0 weights" in text
