"""What was run, against the record."""

import json

from vbdrop.report.overview import overview


def test_a_column_a_run_with_the_figures_of_its_record(run, made):
    runs = [run("vbd"), run("plain")]
    (grid,) = overview(runs, ["a", "b"])
    assert grid.header == ("", "a", "b")
    rows = {row[0]: row[1:] for row in grid.rows}
    results = [json.loads((made[name] / "result.json").read_text()) for name in ("vbd", "plain")]
    assert [text.split(" %")[0] for text in rows["Error"]] == [f"{result['error']:.2f}" for result in results]
    kept = results[0]["nonzero"]
    assert rows["Remaining weights"][0].startswith(f"{kept:,} of {results[0]['weights']:,}, ")
    assert rows["Remaining weights"][1] == f"{results[1]['weights']:,} of {results[1]['weights']:,}"
    assert "kl_weight = 20.0" in rows["Method"][0]
    assert rows["Data"][0] == "digits, the first 300 examples"
    assert rows["Training"][0].startswith("4 epochs, batches of 100, Adam 0.001")


def test_a_run_that_diverged_or_comes_from_nowhere_says_so(run):
    lost = run("vbd", without=["environment.json"], result={"outcome": "diverged", "diverged_in_epoch": 7})
    grid, note = overview([lost], ["a"])
    assert dict(grid.rows)["Made on"] == "an unknown machine: environment.json is missing"
    assert "Error" not in dict(grid.rows)
    assert "infinite in epoch 7" in note.text


def test_a_network_without_weights_is_said_to_have_none(run):
    (grid,) = overview([run("vbd", result={"nonzero": 0, "ratio": None, "weights": 9_000})], ["a"])
    assert dict(grid.rows)["Remaining weights"] == "none of 9,000"
