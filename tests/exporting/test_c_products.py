import pytest
import torch
from torch import nn

from vbdrop.exporting.errors import ExportError

CONVOLUTIONS = {
    "plain": nn.Conv2d(4, 6, 3),
    "stride, padding and dilation": nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2)),
    "padding larger than the kernel": nn.Conv2d(4, 3, 2, padding=4),
    "same, even kernel": nn.Conv2d(4, 6, (4, 3), padding="same", bias=False),
    "valid": nn.Conv2d(4, 6, 2, padding="valid"),
    "groups": nn.Conv2d(4, 6, 3, groups=2, padding=1),
    "depthwise": nn.Conv2d(4, 8, 3, groups=4, stride=2),
    "one pixel": nn.Conv2d(4, 5, 1),
    "one pixel, strided": nn.Conv2d(4, 5, 1, stride=2),
    "as large as the plane": nn.Conv2d(4, 20, (9, 10)),
    "few pixels, many channels": nn.Conv2d(4, 40, (8, 8)),
}


@pytest.fixture
def seeded():
    torch.manual_seed(0)


def test_a_compiler_that_knows_all_sizes_accepts_the_loop_over_planes(as_c, seeded):
    as_c(nn.Conv2d(4, 6, 3, padding=1), torch.randn(2, 4, 6, 6))


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_every_convolution_gives_what_torch_gives(as_c, seeded, sparse):
    class Convolutions(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList(CONVOLUTIONS.values())

        def forward(self, x):
            return torch.cat([part(x).flatten(1) for part in self.parts], 1)

    model = Convolutions().requires_grad_(False)
    for part in model.parts:
        part.reset_parameters()
        if sparse:
            part.weight.mul_(torch.rand_like(part.weight) < 0.15)
    x = torch.randn(2, 4, 9, 10)
    expected = [part(x).flatten(1) for part in model.parts]
    actual = as_c(model, x).split([part.shape[1] for part in expected], 1)
    for name, part, wanted in zip(CONVOLUTIONS, actual, expected, strict=True):
        torch.testing.assert_close(part, wanted, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_patches_are_unfolded_a_few_rows_at_a_time(difference, seeded, tmp_path):
    model = nn.Conv2d(16, 3, 3, padding=1)  # 16 * 9 * 40 * 40 floats of patches
    assert difference(model, torch.randn(2, 16, 40, 40)) < 1e-5
    assert "top += 2)" in (tmp_path / "net.c").read_text()


def test_a_convolution_along_one_axis(difference, seeded):
    model = nn.Sequential(nn.Conv1d(3, 5, 4, stride=2, padding=3, dilation=2), nn.BatchNorm1d(5), nn.Conv1d(5, 5, 1))
    model(torch.randn(9, 3, 20))
    assert difference(model, torch.randn(2, 3, 20)) < 1e-5


def test_products_of_all_kinds(difference, seeded):
    class Products(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = torch.randn(3, 6, 6).unbind()
            self.linear = nn.Linear(6, 6, bias=False)

        def forward(self, x):  # [batch, 5, 6]: a linear layer on each of five rows
            y = self.linear(x) @ self.first
            y = torch.mm(y[:, 0], self.second)
            return torch.addmm(self.third[0], y, self.third)

    assert difference(Products(), torch.randn(2, 5, 6)) < 1e-5


def test_batch_norm_without_a_product_before_it(difference, seeded):
    model = nn.Sequential(
        nn.BatchNorm2d(3, affine=False), nn.ReLU(), nn.BatchNorm2d(3), nn.Flatten(), nn.BatchNorm1d(48)
    )
    model(torch.randn(9, 3, 4, 4) * 3 + 1)
    assert difference(model, torch.randn(2, 3, 4, 4)) < 1e-5


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda x: x @ x.transpose(1, 2), "depends on the model's input"),
        (lambda x: x @ torch.ones(2, 3, 2), "not a matrix"),
        (lambda x: torch.addmm(torch.ones(3), x[:, 0], torch.ones(3, 3), beta=2), "alpha or beta"),
    ],
)
def test_other_products_are_named(as_c, forward, reason):
    class Model(nn.Module):
        def forward(self, x):
            return forward(x)

    with pytest.raises(ExportError, match=reason):
        as_c(Model(), torch.ones(2, 2, 3))
