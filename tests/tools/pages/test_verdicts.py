"""The claims on the page of results."""

from pathlib import Path

from tools.pages.generated import filled
from tools.pages.verdicts import verdicts_of

from vbdrop.experiments import Book, protocol_of
from vbdrop.experiments.verdicts import CLAIMS


def test_without_records_every_claim_is_undecided():
    text = verdicts_of(Path("no/such/folder"))
    assert text.count("| **undecided** | Neither side has runs under the protocol yet. |") == len(CLAIMS)
    short = filled("<!-- short -->", Path("no/such/folder"))
    claims = f"all {len(CLAIMS)} of the paper's claims that runs can decide are undecided so far"
    assert short.startswith(f"**In short:** {claims}; one")


def test_a_comparison_has_its_interval(tmp_path, write_record, write_trials):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    for row, errors in (("vbd", (13.0, 13.1, 13.2)), ("vd", (14.0, 14.1, 14.3))):
        write_trials(book, row, "1", [{"error": 13.0 + k} for k in range(8)])
        for config, error in zip(book.cell(row, "1").finals, errors, strict=True):
            write_record(config, error=error)
    text = filled("<!-- verdicts -->", tmp_path)
    assert "| As a regulariser, VBD has a lower error than VD. | **holds in part** |" in text
    assert "after Holm's correction for 3 planned: 1 (Table 3, scale 1, VD) for the claim, 0 against it." in text
    assert "| Table 3, scale 1 | VBD – VD | -1.03, -1.18 to -0.89 (n = 3) |" in text
    short = filled("<!-- short -->", tmp_path)
    others = f"2 hold in part and {len(CLAIMS) - 2} are undecided so far"
    assert short.startswith(
        f"**In short:** of the paper's {len(CLAIMS)} claims that runs can decide, {others}; one theoretical"
    )


def test_comparisons_of_too_few_pairs_are_listed_apart(tmp_path, write_record, write_trials):
    book = Book(protocol_of(3), tmp_path, {"svhn": "ab"})
    for row, error in (("vbd", 13.0), ("vd", 14.0), ("concrete", 12.5)):
        write_trials(book, row, "1", [{"error": 13.0 + k} for k in range(8)])
        write_record(book.cell(row, "1").finals[0], error=error)
    text = filled("<!-- verdicts -->", tmp_path)
    assert "- Table 3, scale 1, VBD minus: VD -1.00\n" in text
    assert "- Table 3, scale 1, VBD minus: Concrete dropout +0.50; VD -1.00\n" in text
    assert "n = 1" not in text
    assert "| VBD – VD |" not in text
