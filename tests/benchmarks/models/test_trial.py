"""One entry from `convert_` to ONNX, on networks of a few layers."""

import pytest
import torch
from benchmarks.models.entry import Entry
from benchmarks.models.trial import attempt
from benchmarks.models.verdict import shortcomings
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.first, self.second = nn.Linear(6, 20), nn.Linear(20, 30), nn.Linear(30, 20)
        self.head = nn.Linear(20, 3)

    def forward(self, x):
        stream = self.stem(x)
        return self.head(stream + self.second(torch.relu(self.first(stream))))


def entry(make) -> Entry:
    return Entry("here", make.__name__, make, lambda: (torch.randn(4, 6),))


@pytest.mark.filterwarnings("ignore")  # torch's own, of the export to ONNX
def test_a_residual_network_loses_what_its_dead_groups_own():
    row = attempt(entry(Residual))
    assert shortcomings(row) == []
    assert row["entry"] == "here/Residual"
    assert (row["groups"], row["units"], row["killed"]) == (2, 50, 15)
    assert row["owned"] == row["owned_macs"] == row["gone"] == 1.0
    # 14 of 20 channels and 21 of 30 units are left
    weights = 14 * (6 + 2 * 21 + 3)
    assert row["parameters_after"] == weights + 14 + 21 + 14 + 3
    assert row["loaded_difference"] < 1e-5
    assert row["onnx_verified"]
    assert 0 < row["latency"] < 10


class Sorted(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 20), nn.Linear(20, 3)

    def forward(self, x):
        return self.second(self.first(x).sort(-1).values)


@pytest.mark.filterwarnings("ignore")
def test_an_operation_that_is_not_known_is_named():
    row = attempt(entry(Sorted))
    assert any("groups own" in found for found in shortcomings(row))
    assert any("aten.sort" in reason for reason in row["in_the_way"].values())
    assert row["difference"] < 1e-6


def broken():
    raise RuntimeError("no such network\nat all")


def test_what_a_step_raises_is_in_the_row():
    row = attempt(entry(broken))
    assert row["errors"] == {"make": "RuntimeError: no such network"}
    assert shortcomings(row) == ["make: RuntimeError: no such network"]
