import json

import pytest
from benchmarks.models.table import ENTRIES
from tools.models_page import BEGIN, END, PAGE, main

GOOD = {
    **{"entry": "timm/net", "note": "64 pixels", "finite": True, "owned": 0.95, "gone": 1.0, "difference": 3e-7},
    **{"loaded_difference": 3e-7, "parameters": 100, "parameters_after": 49, "macs": 100, "macs_after": 50},
    **{"latency": 0.61, "rounded_latency": 0.55, "onnx_verified": True, "own_forward": True, "seconds": 1.0},
    **{"date": "2026-11-17", "versions": {"torch": "2.13.0"}},
}
BAD = GOOD | {"entry": "timm/other", "owned": 0.5, "own_forward": False, "in_the_way": {"conv": "it is not known"}}
STOPPED = {"entry": "transformers/Slow", "note": "2 layers", "errors": {"process": "took longer than 1 s"}}


def test_the_page_has_every_entry_with_its_figures_and_reasons(tmp_path):
    lines, page = tmp_path / "models.jsonl", tmp_path / "models.md"
    lines.write_text("\n".join(map(json.dumps, [BAD | {"owned": 0.1}, GOOD, BAD, STOPPED])))
    page.write_text(f"# Models\n{BEGIN}\nfrom before\n{END}\nafter\n")
    main([str(lines), "--page", str(page)])
    text = page.read_text()
    assert "| `net`, 64 pixels | 95 % | 100 % | 49 % | 50 % | 61 % | 55 % | 3e-07 | yes | yes |" in text
    assert "| `other`, 64 pixels (new forward) | 50 % |" in text
    assert f"3 of the {len(ENTRIES)} entries of the table were run, 2026-11-17, torch 2.13.0." in text
    assert "**1 of 3 hold** (33 %); 0 give other outputs" in text
    assert "- groups own 50 % of the weights; conv: it is not known (`other`)" in text
    assert "- process: took longer than 1 s (`Slow`)" in text
    assert "from before" not in text
    assert text.endswith(f"{END}\nafter\n")
    assert "earlier" not in text
    lines.write_text(json.dumps(GOOD | {"earlier": True}))
    main([str(lines), "--page", str(page)])
    assert "| `net` †, 64 pixels | 95 % |" in page.read_text()
    assert "1 of the rows are of an earlier version of vbdrop (†)." in page.read_text()


def test_the_page_of_the_documentation_is_made_of_the_results_beside_the_benchmark(tmp_path):
    page = tmp_path / "models.md"
    page.write_text(PAGE.read_text())
    main([str(PAGE.parents[1] / "benchmarks" / "models" / "results.jsonl"), "--page", str(page)])
    assert page.read_text() == PAGE.read_text()


def test_a_page_without_marks_is_refused(tmp_path):
    (tmp_path / "models.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "models.md").write_text("# Models\n")
    with pytest.raises(SystemExit, match="must have one line"):
        main([str(tmp_path / "models.jsonl"), "--page", str(tmp_path / "models.md")])


def test_the_page_of_the_project_has_its_marks():
    assert PAGE.read_text().count(BEGIN) == PAGE.read_text().count(END) == 1
