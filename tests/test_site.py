"""The documentation is built as a site, without a warning, and needs nothing from elsewhere."""

import os
import re
import subprocess
import sys

import pytest
from tests.pages import PROJECT

import vbdrop
from vbdrop.experiments import Book, protocol_of, table


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages by name."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", folder],
        cwd=PROJECT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.html")}


def test_every_page_of_the_documentation_is_there(site):
    assert {path.with_suffix(".html").name for path in (PROJECT / "docs").glob("*.md")} <= site.keys()


def test_nothing_is_fetched_from_elsewhere(site):
    fetched = r"<(?:script|img|iframe|source)\b[^>]*?src=[\"']?https?://|<link\b[^>]*?href=[\"']?https?://[^>]*>|url\(https?://"
    found = {name: re.findall(fetched, text) for name, text in site.items()}
    canonical = 'rel="canonical"'
    assert {name: hits for name, hits in found.items() if [hit for hit in hits if canonical not in hit]} == {}
    assert re.findall(fetched, '<link rel="stylesheet" href="https://fonts.example/css">')


def test_formulas_are_mathml_and_none_is_left_as_source(site):
    assert "<math" in site["mathematics.html"]
    assert "<math" in site["api-rooms.html"]
    left = r":math:|\.\. math|\$<code>|<!-- (?:help|table|frontier|findings|missing|ablations|short|status|verdicts)"
    assert {name: re.findall(left, text) for name, text in site.items() if re.search(left, text)} == {}


def test_every_public_name_has_its_place_in_the_api(site):
    assert [name for name in vbdrop.__all__ if not re.search(rf">\s*vbdrop\.{name}\s*<", site["api.html"])] == []


def test_help_and_results_are_those_of_the_program(site):
    assert "Usage: vbdrop train" in site["command-line.html"]
    assert "LeNet-500-300" in site["results.html"]


def test_the_page_of_results_has_the_figures_of_the_records_in_the_order_of_a_reader(site):
    page = site["results.html"]
    cell = table(Book(protocol_of(4), PROJECT / "records")).cell("vbd", "lenet-300-100")
    figures = f"{cell.ours.ratio.mean:.0f} times fewer weights at {cell.ours.error.mean:.2f}"
    parts = [
        "In short:", "What was learned", figures, "How the numbers are made", "Table 1:", "Table 2:", "Table 3:",
        "Table 4:", '<figure class="plot"><svg', "Table 5:", "What could be wrong", "Ablations:",
        "the same to the last bit", "What is missing",
    ]  # fmt: skip
    text = page[page.index("<article") :]
    places = [text.find(part) for part in parts]
    assert -1 not in places
    assert places == sorted(places)
    assert text.count('<figure class="plot"><svg') == 4
    assert text.rfind('<figure class="plot"><svg') < text.find("What could be wrong")
    assert "Still to run" not in text
