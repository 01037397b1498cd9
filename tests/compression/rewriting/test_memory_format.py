import torch
from tests.compression.nets import NETS, difference, randomise_, shapes
from torch import nn

import vbdrop
from vbdrop.compression import apply_plan_, compress, load
from vbdrop.compression.rewriting.memory_format import to_channels_last_
from vbdrop.models import LeNet5 as FlatLeNet5

IMAGES = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))


def in_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def masked(model: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    randomise_(model)
    with torch.no_grad():
        model.conv1.weight[2:4] = 0
        model.fc2.weight[:, ::2] = 0
    return model


def test_a_model_that_has_it_keeps_it():
    model = randomise_(NETS["resnet"].build())
    x = NETS["resnet"].example()
    assert not compress(model, x).plan.channels_last
    with torch.no_grad():
        model.blocks[0].conv1[0].weight[:3] = 0
    model.to(memory_format=torch.channels_last)
    small = compress(model, x)
    assert all(in_channels_last(small.model.blocks[0].get_parameter(f"conv{i}.0.weight")) for i in (1, 2))
    assert difference(model, small.model, x) < 1e-5


def test_a_small_model_has_the_order_of_the_given_one_and_so_has_what_is_loaded(tmp_path):
    for order in (torch.contiguous_format, torch.channels_last):
        model = masked(FlatLeNet5()).to(memory_format=order)
        small = compress(model, IMAGES)
        assert shapes(small.model)["conv2.weight"] == (50, 18, 5, 5)
        small.save(tmp_path / "net.safetensors")
        applied = apply_plan_(small.plan, masked(FlatLeNet5()))
        for found in (small.model, load(tmp_path / "net.safetensors"), applied):
            assert in_channels_last(found.conv2.weight) is (order is torch.channels_last)
            assert difference(model, found, IMAGES) < 1e-5
            assert difference(model, found, IMAGES.contiguous(memory_format=torch.channels_last)) < 1e-5


@torch.no_grad()
def test_kernels_of_five_dimensions_stay_as_they_are():
    model = nn.Sequential(nn.Conv3d(1, 4, 3, padding=1), nn.Flatten(1, 2), nn.Conv2d(16, 6, 3), nn.MaxPool2d(2))
    to_channels_last_(model)
    assert in_channels_last(model[2].weight)
    assert model[0].weight.is_contiguous()
    model[0].weight[:2] = 0
    x = torch.randn(2, 1, 4, 6, 6)
    small = compress(model.eval(), x)
    assert small.model.get_submodule("0").weight.shape[0] == 2
    assert in_channels_last(small.model.get_submodule("2").weight)
    assert difference(model, small.model, x) < 1e-5


def test_a_model_in_training_stays_as_it_is():
    model = FlatLeNet5()
    vbdrop.convert_(model, vbdrop.Units())
    with torch.no_grad():
        model.conv2.gate.log_sigma2[:4] = 20
    plan = compress(model, IMAGES).plan
    assert not plan.channels_last
    assert plan.program is None
    apply_plan_(plan, model)
    assert model.conv2.weight.shape == (50, 16, 5, 5)
    assert model.conv2.weight.is_contiguous()
