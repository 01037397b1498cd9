import sys

import pytest
import torch
from benchmarks.worker import in_a_process, measure, prepared
from tests.stress import only_in_stress
from torch import nn

TASK = {"network": "1x4", "batch": 2, "threads": 1}


@pytest.fixture
def missing(monkeypatch):
    """A package that is not there, also where it is installed."""
    monkeypatch.setitem(sys.modules, "torch_ard", None)


def test_a_variant_that_fails_has_its_error_and_the_others_their_figures(missing):
    threads = torch.get_num_threads()
    found = measure({**TASK, "variants": ["plain", "pytorch-ard", "vbdrop Units"], "rounds": 1})
    torch.set_num_threads(threads)
    assert list(found) == ["plain", "pytorch-ard", "vbdrop Units"]
    assert found["plain"]["ratio"] == 1
    assert found["pytorch-ard"]["error"].startswith("ModuleNotFoundError: ")
    assert found["vbdrop Units"].keys() == {"milliseconds", "ratio"}


def test_a_step_trains(monkeypatch):
    kept = []
    monkeypatch.setattr("benchmarks.worker.network", lambda name: kept.append(nn.Linear(784, 10)) or Flat(kept[0]))
    step = prepared("1x4", "plain", 2)
    before = kept[0].weight.clone()
    step(0)
    assert not torch.equal(kept[0].weight, before)


class Flat(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x.flatten(1))


@only_in_stress
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_grows_with_the_network_in_a_process_of_its_own():
    sizes = [in_a_process({**TASK, "network": name, "variants": ["plain"]})["plain"] for name in ("1x64", "1x2048")]
    # weights, gradients and two averages: 794 * 2048 * 16 bytes
    assert sizes[1]["megabytes"] > sizes[0]["megabytes"] + 20


def test_what_ends_the_process_is_the_error_of_its_variants():
    found = in_a_process({**TASK, "network": "none", "variants": ["plain", "blitz"]})
    assert found.keys() == {"plain", "blitz"}
    assert "ValueError" in found["plain"]["error"]
