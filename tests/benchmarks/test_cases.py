import json

from benchmarks.cases import line, of_case, rows_of, run

from benchmarks import cases

CASE = {"network": "1x4", "batch": 2, "threads": 1}
TIMED = {
    "plain": {"milliseconds": 2.0, "ratio": 1.0},
    "vbdrop Weights": {"milliseconds": 4.2, "ratio": 2.1},
    "blitz": {"error": "TypeError: no\nmore"},
}
MEMORY = {"plain": {"megabytes": 10.0}, "vbdrop Weights": {"megabytes": 22.0}, "blitz": {"error": "killed"}}


def test_rows_have_ratios_to_plain_or_an_error():
    plain, weights, blitz = rows_of(CASE, TIMED, MEMORY)
    assert weights["memory_ratio"] == 2.2
    assert weights["samples"] == "activations"
    assert weights["network"] == "1x4"
    assert blitz["requirement"] == "blitz-bayesian-pytorch==0.2.8"
    assert line(plain).split() == ["plain", "nothing", "2.00", "ms", "1.00", "x", "10.0", "MB", "1.00", "x"]
    assert line(blitz).split(maxsplit=2) == ["blitz", "weights", "TypeError: no"]


def test_without_the_memory_of_plain_there_is_no_ratio_of_it():
    (row,) = rows_of(CASE, {"vbdrop Units": TIMED["plain"]}, {"vbdrop Units": {"megabytes": 1.0}})
    assert "memory_ratio" not in row
    assert "MB" not in line(row)


def test_a_run_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    tasks = []

    def measured(task, packages):
        tasks.append(task)
        return {name: (TIMED if "rounds" in task else MEMORY)[name] for name in task["variants"]}

    monkeypatch.setattr(cases, "in_a_process", measured)
    output = tmp_path / "figures.json"
    first = run([CASE], ["plain", "vbdrop Weights"], 3, output)
    assert [task["variants"] for task in tasks] == [["plain", "vbdrop Weights"], ["plain"], ["vbdrop Weights"]]
    assert json.loads(output.read_text())["rows"] == first
    other = {**CASE, "batch": 4}
    found = run([CASE, other], ["plain", "vbdrop Weights"], 3, output)
    assert {task["batch"] for task in tasks[3:]} == {4}
    assert of_case(CASE, found) == first
    assert len(found) == 4
    # a case that lacks a variant is measured again as a whole, so that all its ratios are of one run
    found = run([CASE], [*TIMED], 3, output)
    assert [row["variant"] for row in of_case(CASE, found)] == [*TIMED]
    assert "TypeError" in capsys.readouterr().out
