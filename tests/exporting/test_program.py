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


def test_a_forward_that_asks_for_the_length_of_its_batch_is_told_what_to_ask_for():
    class Viewing(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.size = size

        def forward(self, x):
            return x.view(self.size(x), -1)

    trace_program(Viewing(lambda x: x.shape[0]), (torch.randn(3, 2, 2),))
    with pytest.raises(ExportError, match=r"`len\(x\)` and `int\(x\.shape\[0\]\)` are constants, too; write `x\.shape"):
        trace_program(Viewing(len), (torch.randn(3, 2, 2),))
