"""The small network of a run."""

import pytest
import torch
from torch import nn

from vbdrop.experiments import Record, execute
from vbdrop.experiments.inputs import examples
from vbdrop.experiments.kept_network import kept_network, save_network
from vbdrop.train import RecordError, evaluate


def test_the_network_of_a_run_comes_back_with_its_error(tiny, tmp_path):
    config = tiny("gradual-pruning", hyper={"sparsity": 0.95, "every": 1}, epochs=4)
    record = execute(config, tmp_path)
    network = kept_network(record)
    assert (
        sum(int(torch.count_nonzero(layer.weight)) for layer in network.modules() if isinstance(layer, nn.Linear))
        == (record.result["nonzero"])
    )
    assert evaluate(network, examples(config).test).wrong == record.result["wrong"]


@pytest.mark.parametrize("change", [{"method": "bernoulli-dropout"}, {"n_valid": 100}])
def test_it_is_kept_of_runs_that_compress_and_count(tiny, tmp_path, change):
    record = execute(tiny(**change), tmp_path)
    with pytest.raises(RecordError, match=r"has no network.safetensors"):
        kept_network(record)


def test_far_apart_weights_and_empty_tensors_are_kept(tmp_path):
    layer = nn.Linear(400, 300)
    nn.init.zeros_(layer.weight)
    with torch.no_grad():
        layer.weight[0, 3] = 2.0
        layer.weight[-1, -1] = -1.5
        layer.bias.zero_()
    save_network(layer, tmp_path)
    assert (tmp_path / "network.safetensors").stat().st_size < 1000


def test_a_damaged_file_is_said(tiny, tmp_path):
    record = execute(tiny("gradual-pruning"), tmp_path)
    path = record.folder / "network.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(RecordError, match="is damaged"):
        kept_network(Record(record.folder))
