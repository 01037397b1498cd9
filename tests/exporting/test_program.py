import pytest
import torch
from torch import nn

from vbdrop.exporting import ExportError, export
from vbdrop.exporting.program import run_program, trace_program


class ManyInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, *parts, scale=2.0):
        return {"sum": self.linear(sum(parts)) * scale}


def test_the_file_runs_without_its_class_for_any_batch(tmp_path):
    model = ManyInputs()
    exported = export(model, tmp_path / "net.pt2", (torch.randn(1, 4), torch.randn(1, 4)))
    assert exported.verified
    inputs = (torch.randn(9, 4), torch.randn(9, 4))
    (actual,) = run_program(exported.path)(inputs)
    torch.testing.assert_close(actual, model(*inputs)["sum"])


def test_double_precision_stays(tmp_path):
    exported = export(nn.Linear(4, 2).double(), tmp_path / "net.pt2", torch.randn(2, 4, dtype=torch.float64))
    assert exported.difference < 1e-12
    assert run_program(exported.path)((torch.randn(2, 4, dtype=torch.float64),))[0].dtype == torch.float64


def test_a_model_for_one_size_of_batch_is_refused():
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(12).sum()

    with pytest.raises(ExportError, match="cannot trace the model for batches of any size: "):
        trace_program(Fixed(), (torch.randn(3, 4),))
