"""The page of the paper's tables, in a real browser."""

from tests.report.test_page import CONTRAST, OVERFLOW

from vbdrop.report import PaperTable, render_tables
from vbdrop.sheets import Sheet


def table(number):
    header = ("Method", "error %", "paper", "zeros by layer %", "paper", "fewer weights", "paper", "n")
    rows = (
        ("Original <b>", "1.66 ± 0.02", "1.64", "0.0-0.0-0.0", "–", "1.0x", "1x", "3"),
        ("VBD", "not run", "1.76", "–", "98.9-98.1-90.9", "–", "81x", "–"),
    )
    sheet = Sheet("LeNet-300-100", header, rows, (False, True))
    return PaperTable(number, "Compressing weights on MNIST", (sheet,), ("A note.",), ("vbdrop table 4 --run",))


def test_ours_beside_theirs(browser, tmp_path):
    path = tmp_path / "tables.html"
    path.write_text(render_tables([table(4), table(5)]))
    for width in (375, 1280):
        for scheme in ("light", "dark"):
            browser.open(path, width, scheme)
            assert browser.complaints() == []
            assert browser.run(OVERFLOW) == []
            assert browser.run(CONTRAST) == []
    assert browser.run("[...document.querySelectorAll('h2')].map(e => e.textContent)") == [
        "Table 4: Compressing weights on MNIST", "Table 5: Compressing weights on MNIST",
    ]  # fmt: skip
    assert browser.run("document.querySelector('td.absent').textContent") == "not run"
    assert browser.run("[...document.querySelectorAll('tr.strong th')].map(e => e.textContent)") == ["VBD", "VBD"]
    assert browser.run("document.querySelector('tbody th').textContent") == "Original <b>"
    assert browser.run("document.querySelector('details pre').textContent") == "vbdrop table 4 --run"
