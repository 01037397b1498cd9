"""What was measured of a small network, beside its run."""

import json

import torch

from vbdrop.compression import compress
from vbdrop.experiments import execute, trained_model
from vbdrop.experiments.measuring import write_measured
from vbdrop.exporting import measure


def test_it_is_written_beside_the_record_and_says_what_was_measured(tiny, tmp_path):
    record = execute(tiny(epochs=3, hyper={"kl_weight": 20.0}), tmp_path, keep_weights=True)
    model = trained_model(record)
    small = compress(model, torch.rand(4, 1, 28, 28))
    measurement = measure(model, small, batches=(1, 2), rounds=3)
    written = write_measured(record, small, 12.5, measurement, {"small, C": "there is no C compiler"})
    assert json.loads((record.folder / "measured.json").read_text()) == written
    assert (written["run"], written["error"]) == (record.config.id, 12.5)
    assert [row["name"] for row in written["rows"]] == ["original, PyTorch", "small, PyTorch"]
    row = written["rows"][1]
    assert row["bytes"] == measurement.rows["small, PyTorch"].bytes
    assert row["microseconds"]["2"] == 1e6 * measurement.rows["small, PyTorch"].latency(2)
    assert written["rows"][0]["faster"] == {"1": 1.0, "2": 1.0}
    assert written["missing"] == {"small, C": "there is no C compiler"}
    assert [layer["name"] for layer in written["layers"]] == ["hidden.0", "hidden.1", "hidden.2", "output"]
    assert sum(layer["weights"] for layer in written["layers"]) == record.result["weights"]
