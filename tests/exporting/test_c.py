import re

import pytest
import torch
from torch import nn

from vbdrop.exporting.c import run_c, write_c
from vbdrop.exporting.errors import ExportError
from vbdrop.exporting.exporting import export
from vbdrop.models import build


@pytest.mark.parametrize(
    ("name", "arguments", "shape"),
    [("mlp", {"units": 20}, (1, 28, 28)), ("lenet-5", {}, (1, 28, 28)), ("vgg", {"width": 0.0625}, (3, 32, 32))],
)
def test_the_networks_of_the_papers_answer_the_same_in_c(difference, name, arguments, shape):
    torch.manual_seed(0)
    model = build(name, **arguments).requires_grad_(False)
    if name == "lenet-5":
        model.fc1.weight.mul_(torch.rand_like(model.fc1.weight) < 0.02)
    model(torch.randn(8, *shape))  # statistics of batch-norm that are not the initial ones
    assert difference(model, torch.randn(3, *shape)) < 1e-5


def test_a_residual_network_answers_the_same_in_c(difference):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Conv2d(3, 8, 3, padding=1, stride=2)
            self.norm = nn.BatchNorm2d(8)
            self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
            self.pointwise = nn.Conv2d(8, 8, 1)
            self.gate = nn.Linear(8, 8)
            self.head = nn.Linear(16, 4)

        def forward(self, x):
            x = torch.relu(self.norm(self.first(x)))
            y = self.pointwise(torch.relu_(self.depthwise(x)))
            y = y * torch.sigmoid(self.gate(y.mean((2, 3))))[:, :, None, None]
            y = nn.functional.silu(x + y)
            pooled = torch.cat([nn.functional.adaptive_avg_pool2d(y, 1), y.amax((2, 3), keepdim=True)], 1)
            return self.head(pooled.flatten(1)).log_softmax(1)

    torch.manual_seed(0)
    model = Residual()
    model(torch.randn(8, 3, 9, 9))
    assert difference(model, torch.randn(3, 3, 9, 9)) < 1e-5


def test_a_network_with_nothing_left_answers_its_constant(difference):
    model = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2))
    nn.init.zeros_(model[0].weight)
    nn.init.zeros_(model[2].weight)
    assert difference(model, torch.randn(3, 5)) < 1e-6
    without_inputs = nn.Sequential(nn.Linear(5, 3), nn.ReLU(), nn.Linear(3, 2))
    without_inputs[2].weight = nn.Parameter(torch.zeros(2, 0))
    without_inputs[0].weight, without_inputs[0].bias = nn.Parameter(torch.zeros(0, 5)), nn.Parameter(torch.zeros(0))
    assert difference(without_inputs, torch.randn(3, 5)) < 1e-6


def test_samples_of_a_batch_do_not_disturb_each_other(tmp_path, compiler):
    model = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 5)).eval()
    batch = torch.randn(7, 6)
    source, _ = write_c(model, tmp_path / "net.c", (batch,))
    run = run_c(source)
    assert torch.equal(run((batch,))[0], torch.cat([run((sample[None],))[0] for sample in batch]))


def test_the_names_come_from_the_file_and_the_sizes_stand_in_the_header(tmp_path):
    source, header = write_c(nn.Linear(6, 4).eval(), tmp_path / "tiny-net.c", (torch.zeros(1, 6),))
    assert source.name == "tiny-net.c"
    assert header.name == "tiny-net.h"
    text = header.read_text()
    assert "void tiny_net_predict(const float *input, float *output);" in text
    assert "#define TINY_NET_INPUT_SIZE 6" in text
    assert "#define TINY_NET_OUTPUT_SIZE 4" in text
    assert '#include "tiny-net.h"' in source.read_text()


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("modèle.c", "mod_e8le.h"),
        ('we"ird.c', "we_22ird.h"),
        ("a\\b'?.c", "a_5cb_27_3f.h"),
        ("tab\t.c", "tab_9.h"),
        ("my net (2).c", "my net (2).h"),
        ("v1.2.c", "v1.2.h"),
    ],
)
def test_a_file_of_any_name_includes_the_header_that_is_written(tmp_path, compiler, name, header):
    model, batch = nn.Linear(2, 1), torch.randn(3, 2)
    exported = export(model, tmp_path / name, batch)
    assert exported.verified
    assert [path.name for path in exported.paths] == [name, header]
    assert sorted(tmp_path.iterdir()) == sorted(exported.paths)
    assert f'#include "{header}"\n'.encode("ascii") in exported.path.read_bytes()


def test_nothing_is_allocated_and_no_other_header_is_used(tmp_path):
    model = build("lenet-5").eval()
    source, header = write_c(model, tmp_path / "net.c", (torch.zeros(1, 1, 28, 28),))
    text = source.read_text() + header.read_text()
    assert "alloc" not in text
    assert set(re.findall("#include (.*)", text)) == {
        '"net.h"', "<math.h>", "<stdint.h>", "<string.h>", "<stddef.h>"
    }  # fmt: skip


def test_several_inputs_are_refused():
    with pytest.raises(ExportError, match="one input; this one has 2"):
        write_c(nn.Bilinear(2, 2, 2), None, (torch.zeros(1, 2), torch.zeros(1, 2)))


def test_complex_numbers_are_refused(tmp_path):
    with pytest.raises(ExportError, match=r"real numbers; the input is torch\.complex64"):
        write_c(nn.Identity(), tmp_path / "net.c", (torch.zeros(1, 2, dtype=torch.complex64),))


def test_without_a_compiler_it_cannot_be_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert run_c(tmp_path / "net.c") is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_precision_is_written_as_single(tmp_path, compiler, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).to(dtype)
    exported = export(model, tmp_path / "net.c", torch.randn(2, 4, dtype=dtype))
    assert exported.verified
    assert 0 < exported.difference < 2e-2
