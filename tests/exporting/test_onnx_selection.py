import pytest
import torch
from torch import nn

from vbdrop.exporting import export

onnx = pytest.importorskip("onnx")


class Selecting(nn.Module):
    """One selection of 30 of 40 inputs, read by ``readers`` products with ``units`` units."""

    def __init__(self, units: int, readers: int = 1) -> None:
        super().__init__()
        self.register_buffer("kept", torch.randperm(40)[:30])
        self.layers = nn.ModuleList(nn.Linear(30, units) for _ in range(readers))

    def forward(self, x):
        x = x.index_select(1, self.kept)
        return tuple(layer(x) for layer in self.layers)


@pytest.mark.parametrize(
    ("units", "readers", "operations"),
    [(5, 1, ["Gemm"]), (600, 1, ["Gather", "Gemm"]), (5, 2, ["Gather", "Gemm", "Gemm"])],
    ids=["narrow", "wide", "read twice"],
)
def test_a_selection_is_taken_into_a_product_where_that_is_quicker(tmp_path, units, readers, operations):
    exported = export(Selecting(units, readers), tmp_path / "net.onnx", torch.randn(2, 40))
    assert exported.verified
    graph = onnx.load(exported.path).graph
    assert [node.op_type for node in graph.node] == operations
    onnx.checker.check_model(onnx.load(exported.path), full_check=True)
    if operations == ["Gemm"]:
        assert {tensor.name: list(tensor.dims) for tensor in graph.initializer} == {
            "layers.0.weight": [5, 40],
            "layers.0.bias": [5],
        }
