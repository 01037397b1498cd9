"""The trained model of a run comes back as it was."""

import pytest
import torch

from vbdrop.experiments import execute, trained_model
from vbdrop.experiments.inputs import examples
from vbdrop.train import RecordError, evaluate


@pytest.mark.parametrize("method", ["vbd-gates", "magnitude-pruning", "concrete-dropout"])
def test_a_model_with_noise_or_masks_comes_back(method, tiny, tmp_path):
    config = tiny(method, epochs=2)
    record = execute(config, tmp_path, keep_weights=True)
    model = trained_model(record)
    assert not model.training
    network = config.build_method().finish(model)
    assert evaluate(network, examples(config).test).wrong == record.result["wrong"]


def test_what_is_not_there_is_said(tiny, tmp_path):
    record = execute(tiny(epochs=1), tmp_path)
    with pytest.raises(RecordError, match="was made without keeping them"):
        trained_model(record)
    (record.folder / "weights.safetensors").write_bytes(torch.arange(100).numpy().tobytes())
    with pytest.raises(RecordError, match=r"weights\.safetensors is damaged"):
        trained_model(record)
