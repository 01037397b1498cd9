"""The page: whole, escaped, and in a real browser as people see it."""

import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from vbdrop.report import ReportError, render_report
from vbdrop.report.table import SECTIONS

OVERFLOW = """
(() => {
  const wide = window.innerWidth, found = [];
  if (document.scrollingElement.scrollWidth > wide) found.push("the page scrolls sideways");
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest(".scroll") && !element.matches("caption span")) continue;
    if (element.closest(".skip") || !element.getClientRects().length) continue;
    const box = element.getBoundingClientRect();
    if (box.right > wide + 1 || box.left < -1) found.push(element.tagName + " " + element.textContent.slice(0, 40));
    if (element.matches("figcaption, p") && element.textContent.length > 60 && box.width < 180) {
      found.push("squeezed: " + element.textContent.slice(0, 40));
    }
    if (element instanceof SVGTextElement) {
      const frame = element.ownerSVGElement.getBoundingClientRect();
      if (box.left < frame.left - 2 || box.right > frame.right + 2) found.push("figure: " + element.textContent);
    }
  }
  return found;
})()
"""

CONTRAST = """
(() => {
  const light = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const paper = light(getComputedStyle(document.body).backgroundColor), faint = [];
  for (const element of document.querySelectorAll("p, td, th, caption, figcaption, dt, dd, h1, h2, h3, a, svg text")) {
    const seen = getComputedStyle(element);
    const ink = light(element instanceof SVGTextElement ? seen.fill : seen.color);
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) faint.push(`${element.textContent.slice(0, 30)} ${ratio.toFixed(1)}`);
  }
  return faint;
})()
"""


@pytest.fixture(scope="module")
def rendered(made):
    """The pages of a run and of two: drawing them takes seconds, so it is done once."""
    return {names: render_report([made[name] for name in names]) for names in (("vbd",), ("vbd", "plain"))}


@pytest.fixture
def page(rendered, tmp_path):
    def write(*names, html=None):
        path = tmp_path / "report.html"
        path.write_text(html or rendered[names])
        return path

    return write


@pytest.mark.parametrize("names", [("vbd",), ("vbd", "plain")])
@pytest.mark.parametrize(("width", "scheme"), [(375, "light"), (375, "dark"), (1280, "light"), (1280, "dark")])
def test_it_opens_from_disk_quietly_and_nothing_overflows_or_is_faint(browser, page, names, width, scheme):
    path = page(*names)
    browser.open(path, width, scheme)
    assert browser.complaints() == []
    assert [url for url in browser.requested() if not url.startswith("data:")] == [path.resolve().as_uri()]
    assert browser.run(OVERFLOW) == []
    assert browser.run(CONTRAST) == []
    assert browser.run("matchMedia('(prefers-color-scheme: dark)').matches") == (scheme == "dark")
    brightness = sum(map(int, re.findall(r"\d+", browser.run("getComputedStyle(document.body).backgroundColor"))[:3]))
    assert (brightness < 150) == (scheme == "dark")


def test_the_slider_moves_the_numbers_with_the_keyboard(browser, page, made):
    points = json.loads((made["vbd"] / "details.json").read_text())["sweep"]
    points = [point for point in points if point["nonzero"]]
    start = next(index for index, point in enumerate(points) if point["own"])
    browser.open(page("vbd"))
    shown = (
        "Object.fromEntries([...document.querySelectorAll('[data-show]')].map(e => [e.dataset.show, e.textContent]))"
    )
    place = "document.querySelector('.marker').getAttribute('cx')"
    browser.run("document.querySelector('input[type=range]').focus()")
    seen = []
    for key, index in ((None, start), ("ArrowLeft", start - 1), ("Home", 0), ("End", len(points) - 1)):
        if key:
            browser.press(key)
        point, now = points[index], browser.run(shown)
        assert now["threshold"] == f"{point['threshold']:g}"
        assert now["error"] == f"{point['error']:.2f} %"
        assert now["weights"] == f"{point['nonzero']:,}"
        said = browser.run("document.querySelector('input[type=range]').getAttribute('aria-valuetext')")
        assert said == f"{now['threshold']}: {now['error']} error, {now['weights']} weights"
        seen.append(float(browser.run(place)))
    assert seen[2] < seen[1] <= seen[0] <= seen[3]
    label = browser.run("document.querySelector('input[type=range]').labels[0].textContent")
    assert label.startswith("Threshold on log alpha")


def test_it_can_be_walked_through_with_the_keyboard_and_a_screen_reader(browser, page):
    browser.open(page("vbd", "plain"))
    browser.press("Tab")
    assert browser.run("document.activeElement.getAttribute('href')") == "#main"
    assert browser.run("[...document.querySelectorAll('svg')].filter(e => !e.getAttribute('aria-label')).length") == 0
    assert browser.run("[...document.querySelectorAll('table')].filter(e => !e.caption.textContent).length") == 0
    assert browser.run("[...document.querySelectorAll('.scroll')].filter(e => e.tabIndex !== 0).length") == 0
    levels = browser.run("[...document.querySelectorAll('h1,h2,h3')].map(e => Number(e.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = browser.run("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))


def test_on_paper_it_is_black_on_white(browser, page):
    browser.open(page("vbd"), scheme="dark")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="")


class Headings(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.found, self.inside = [], False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == "h2"

    def handle_data(self, data):
        if self.inside:
            self.found.append(data)
            self.inside = False


def test_every_section_is_there_and_the_page_is_the_same_every_time(made, rendered):
    html = rendered["vbd",]
    assert Headings(html).found == [section.title for section in SECTIONS]
    assert html == render_report([made["vbd"]])
    assert str(made["vbd"].parent) not in html


def test_what_comes_from_a_record_is_escaped(browser, copied, page):
    evil = '</script><img src=x onerror=alert(1)>$x$ & "quoted"'
    folder = copied("vbd")
    for file in folder.glob("*.json*"):
        text = file.read_text().replace("hidden.0", json.dumps(evil)[1:-1])
        file.write_text(re.sub('"processor": "[^"]*"', lambda _: f'"processor": {json.dumps(evil)}', text))
    html = render_report([folder])
    assert "<img" not in html
    browser.open(page(html=html))
    assert browser.complaints() == []
    assert browser.run("document.querySelectorAll('img').length") == 0


def test_an_old_record_says_what_is_missing_and_how_to_get_it(browser, copied, page):
    old = copied("vbd", without=["details.json", "measured.json", "weights.safetensors", "environment.json"])
    html = render_report([old])
    again = f"vbdrop train --config {old}/config.json --records runs"
    assert html.count(again) >= 5
    assert "there is no details.json" in html
    assert "there is no measured.json" in html
    assert "environment.json is missing" in html
    kept = copied("vbd", without=["details.json", "measured.json"])
    assert f"vbdrop compress {kept} --measure" in render_report([kept])
    browser.open(page(html=html), width=375)
    assert browser.complaints() == []
    assert browser.run(OVERFLOW) == []


def test_a_run_that_diverged_has_a_page_too(copied):
    folder = copied("vbd", without=["details.json", "measured.json"])
    head = {"run": "ab", "outcome": "diverged", "epochs": 4, "evaluated_on": "test", "diverged_in_epoch": 3}
    (folder / "result.json").write_text(json.dumps(head))
    html = render_report([folder, folder])
    assert "diverged" in html
    assert "in epoch 3" in html


def test_no_run_is_an_error():
    with pytest.raises(ReportError, match="at least one run"):
        render_report([])
    with pytest.raises(ReportError, match="there is no such folder"):
        render_report([Path("no/such/run")])
