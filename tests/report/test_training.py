"""The curves of a run, against its metrics."""

from vbdrop.report.training import training


def test_one_curve_of_the_error_for_all_runs_and_one_of_the_weights_for_each(run):
    vbd, plain = run("vbd"), run("plain")
    errors, weights, none = training([vbd, plain], ["learned", "plain"])
    ends = [each.metrics[-1]["error"] for each in (vbd, plain)]
    assert errors.caption.endswith(f"learned ends at {ends[0]:.2f} %; plain ends at {ends[1]:.2f} %.")
    assert errors.wide
    assert all(layer["name"] in weights.svg for layer in vbd.result["layers"])
    first = vbd.result["layers"][0]
    assert f"hidden.0 {100 * first['nonzero'] / first['weights']:.1f} %" in weights.caption
    assert (none.heading, "no weight to zero" in none.text) == ("plain", True)


def test_a_run_that_was_never_evaluated_says_so(run):
    lost = run("vbd", result={"outcome": "diverged", "diverged_in_epoch": 1})
    for line in lost.metrics:
        line.pop("error")
        line.pop("nonzero")
    errors, weights = training([lost], ["a"])
    assert "no error curve" in errors.text
    assert "did not record the weights" in weights.text


def test_errors_on_different_data_are_not_called_by_those_of_the_first_run(run):
    both = [run("vbd", result={"evaluated_on": where}) for where in ("validation", "test")]
    assert training(both, ["a", "b"])[0].caption.startswith("The validation or test error of the network")
    assert training(both[:1], ["a"])[0].caption.startswith("The validation error of the network")
