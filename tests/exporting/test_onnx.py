import sys

import pytest
import torch
from torch import nn

from vbdrop.exporting import ExportError, export
from vbdrop.exporting.onnx import require_packages, run_onnx

onnx = pytest.importorskip("onnx")


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.head = nn.Linear(3 * 16, 2)

    def forward(self, image, weight):
        x = torch.relu(self.norm(self.conv(image))).flatten(1)
        return self.head(x) * weight, x.mean(1)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("onnx")
    model = TwoInputs()
    model(torch.randn(4, 1, 4, 4), torch.randn(4, 1))
    exported = export(model, folder / "net.onnx", (torch.randn(1, 1, 4, 4), torch.randn(1, 1)))
    return model.eval(), exported


def test_what_onnx_runtime_does_not_have_is_named(tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).double()
    with pytest.raises(ExportError, match=r"ONNX Runtime cannot run net\.onnx: .*Conv"):
        export(model, tmp_path / "net.onnx", torch.randn(2, 1, 4, 4, dtype=torch.float64))
    assert list(tmp_path.iterdir()) == []


def test_a_precision_that_onnx_runtime_lacks_is_named(tmp_path):
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).double()
    with pytest.raises(ExportError, match=r"in double, for which .* lacks operations: export model\.float\(\)"):
        export(model, tmp_path / "net.onnx", torch.randn(2, 1, 4, 4, dtype=torch.float64))
    with pytest.raises(ExportError, match=r"inputs in bfloat16; export model\.float\(\)"):
        export(nn.Linear(4, 2).bfloat16(), tmp_path / "net.onnx", torch.randn(2, 4).bfloat16())
    tokens = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2)).bfloat16()
    with pytest.raises(ExportError, match=r"in bfloat16, for which .* lacks operations: export model\.float\(\)"):
        export(tokens, tmp_path / "net.onnx", torch.randint(5, (2, 3)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("other", "named"), [(lambda x: x.shape[1], "4"), (lambda x: x.shape[0], "a number that")])
def test_a_model_that_returns_a_number_is_refused(tmp_path, other, named):
    class Counting(nn.Linear):
        def forward(self, x):
            return super().forward(x), other(x)

    with pytest.raises(ExportError, match=rf"returns tensors only, and the model also returns {named}"):
        export(Counting(4, 2), tmp_path / "net.onnx", torch.randn(3, 4))
    assert list(tmp_path.iterdir()) == []


def test_what_torch_cannot_write_as_onnx_is_named(tmp_path):
    class Bessel(nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    with pytest.raises(ExportError, match=r"^torch cannot write the model as ONNX: .*bessel_j0"):
        export(Bessel(), tmp_path / "net.onnx", torch.randn(2, 4))
    assert list(tmp_path.iterdir()) == []


def test_what_onnx_runtime_finds_out_only_when_it_runs_is_named(tmp_path):
    class Added(nn.Module):
        def forward(self, x):
            return x.index_add(1, torch.tensor([0, 2]), x[:, :2])

    with pytest.raises(ExportError, match=r"net\.onnx cannot be run, and was not written: .*ScatterND"):
        export(Added(), tmp_path / "net.onnx", torch.randn(2, 4).half())
    assert list(tmp_path.iterdir()) == []


def test_it_is_verified_and_lies_in_one_file(written):
    _, exported = written
    assert exported.verified
    assert exported.difference < 1e-5
    assert list(exported.path.parent.iterdir()) == [exported.path]
    assert exported.bytes == exported.path.stat().st_size


def test_the_batch_is_free_and_has_a_name(written):
    model, exported = written
    graph = onnx.load(exported.path).graph
    assert [value.type.tensor_type.shape.dim[0].dim_param for value in graph.input] == ["batch", "batch"]
    inputs = (torch.randn(7, 1, 4, 4), torch.randn(7, 1))
    for expected, actual in zip(model(*inputs), run_onnx(exported.path)(inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_it_tells_nothing_of_the_machine_that_wrote_it(written):
    text = written[1].path.read_bytes()
    assert b"site-packages" not in text
    assert b"File " not in text
    onnx.checker.check_model(onnx.load(written[1].path), full_check=True)


def test_a_missing_package_names_the_line_to_install(monkeypatch):
    for name in ("onnxruntime", "onnxscript"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr("vbdrop.exporting.onnx.find_spec", lambda name: None if name != "onnx" else object())
    with pytest.raises(ImportError, match=r'onnxscript and onnxruntime: pip install "vbdrop\[export\]"'):
        require_packages()
