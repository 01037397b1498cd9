"""What is kept for the report, against the model that it is about."""

import json

import pytest
import torch
from torch import nn

from vbdrop.convert import convert_
from vbdrop.experiments import execute, trained_model
from vbdrop.experiments.details import details, noise, size_against_error
from vbdrop.experiments.inputs import examples
from vbdrop.layers import Rates, Weights
from vbdrop.train import Batch

LIMIT = 60_000  # bytes a run


@pytest.fixture
def record(tiny, tmp_path):
    return execute(tiny(epochs=4, hyper={"kl_weight": 20.0}), tmp_path, keep_weights=True)


def test_a_run_leaves_its_details_and_they_can_be_made_again_from_its_weights(record):
    content = json.loads((record.folder / "details.json").read_text())
    assert (record.folder / "details.json").stat().st_size < LIMIT
    config, result = record.config, record.result
    model = trained_model(record)
    network = config.build_method().finish(trained_model(record))
    assert details(config, model, network, examples(config).test) == content
    assert content["run"] == config.id
    (own,) = (point for point in content["sweep"] if point["own"])
    assert (own["threshold"], own["error"], own["nonzero"]) == (3.0, result["error"], result["nonzero"])
    assert own["compact_weights"] == result["compact_weights"]
    for size in ("nonzero", "compact_weights"):
        kept = [point[size] for point in content["sweep"]]
        assert kept == sorted(kept)
        assert kept[0] < kept[-1]
    for each in content["noise"]:
        assert each["below"] + each["above"] + sum(each["counts"]) == each["count"]
        assert each["p"] == pytest.approx(result["rates"][each["name"]]["p"], abs=1e-5)
        assert each["p_quantiles"] == sorted(each["p_quantiles"])
    assert sum(each["count"] for each in content["calibration"]) == result["examples"]


def test_units_that_gates_take_out_are_counted_at_every_threshold(tiny, tmp_path):
    record = execute(tiny("vbd-gates", epochs=4, hyper={"kl_weight": 20.0}), tmp_path)
    (own,) = (point for point in json.loads((record.folder / "details.json").read_text())["sweep"] if point["own"])
    assert own["compact_weights"] == record.result["compact_weights"] <= own["nonzero"]


def test_the_histogram_counts_log_alpha_where_it_is():
    model = nn.Sequential(nn.Linear(4, 1, bias=False))
    convert_(model, Weights(threshold=2.0))
    with torch.no_grad():
        model[0].weight.fill_(1.0)
        model[0].log_sigma2.copy_(torch.tensor([[-50.0, -11.9, 0.1, 30.0]]))
    (found,) = noise(model)
    assert (found["below"], found["above"], found["threshold"]) == (1, 1, 2.0)
    width = (found["highest"] - found["lowest"]) / len(found["counts"])
    centres = [found["lowest"] + (i + 0.5) * width for i, count in enumerate(found["counts"]) if count]
    assert centres == pytest.approx([-11.9, 0.1], abs=width / 2)


def test_a_shared_rate_counts_once_and_cannot_kill():
    model = nn.Sequential(nn.Linear(8, 4))
    convert_(model, Rates(per="unit", rate=0.2))
    (found,) = noise(model)
    assert found["count"] == 8
    assert found["p_quantiles"] == pytest.approx([0.2] * 5)
    test = Batch(torch.rand(5, 8), torch.zeros(5, dtype=torch.long))
    assert size_against_error(model, test) is None


def test_looking_does_not_change_what_it_looks_at(record):
    model, network = trained_model(record), record.config.build_method().finish(trained_model(record))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    details(record.config, model, network, examples(record.config).test)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
