"""``vbdrop demo``."""

import json
import re


def test_what_it_shows_is_what_this_run_measured(vbdrop, tmp_path):
    result = vbdrop("demo", "--epochs", "2", "--records", tmp_path)
    assert result.code == 0
    results = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.glob("*/result.json")}
    plain, pruned = (next(r for name, r in results.items() if name.startswith(kind)) for kind in ("plain", "vbd"))
    (line,) = (
        line for line in result.out.splitlines() if re.match(r" *test error .*%.*%", line) and "wrong" not in line
    )
    assert re.findall(r"[\d.]+ %", line) == [f"{plain['error']:.2f} %", f"{pruned['error']:.2f} %"]
    assert f"{pruned['nonzero']:,} of 266,200 are not zero" in result.out
    assert re.search(r"vbdrop compress .*vbd-weights-lenet-300-100-digits-\w+ --save", result.out)
