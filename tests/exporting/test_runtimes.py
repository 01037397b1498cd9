import numpy as np
import torch
from torch import nn

from vbdrop.exporting import c_compiler, export
from vbdrop.exporting.runtimes import in_c, in_program, in_torch


def test_the_inputs_are_gone_through_in_turn():
    seen = []

    class Seen(nn.Module):
        def forward(self, x):
            seen.append(x.item())

    case = in_torch(Seen())([(torch.tensor([float(i)]),) for i in range(3)])
    for call in range(5):
        case(call)
    assert seen == [0.0, 1.0, 2.0, 0.0, 1.0]


def test_a_program_answers(tmp_path):
    model = nn.Linear(4, 2)
    exported = export(model, tmp_path / "net.pt2", torch.randn(2, 4))
    inputs = (torch.randn(5, 4),)
    answer = in_program(exported.path)([inputs])(0)
    torch.testing.assert_close(answer, model(*inputs))


def test_c_writes_the_answer_of_each_sample_and_of_a_batch(tmp_path, compiler, monkeypatch):
    model = nn.Linear(4, 2)
    exported = export(model, tmp_path / "net.c", torch.randn(2, 4))
    outputs = []
    monkeypatch.setattr(np, "empty", lambda *args, **kwargs: outputs.append(np.zeros(*args, **kwargs)) or outputs[-1])
    batch = torch.randn(3, 4)
    runtime = in_c(exported.path)
    single = runtime([(sample[None],) for sample in batch])
    for call, expected in enumerate(model(batch)):
        single(call)
        torch.testing.assert_close(torch.from_numpy(outputs[-1][0]), expected.detach())
    runtime([(batch,)])(0)
    torch.testing.assert_close(torch.from_numpy(outputs[-1]), model(batch).detach())
    assert "-march=native" in c_compiler.FAST
