import pytest
import torch
from tests.compression.nets import NETS, LeNet5, difference, randomise_, shapes
from torch import nn

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.compression import apply_plan_, compress, load
from vbdrop.compression.rewriting.memory_format import prefers_channels_last
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


class Pooled(nn.Module):
    def __init__(self, pool, end):
        super().__init__()
        self.conv, self.pool, self.end = nn.Conv2d(1, 4, 3), pool, end

    def forward(self, x):
        return self.end(self.pool(self.conv(x)))


@pytest.mark.parametrize(
    ("pool", "end", "preferred"),
    [
        (nn.MaxPool2d(2), nn.Flatten(), True),
        (nn.MaxPool2d(2, return_indices=True), lambda found: found[0].flatten(1), True),
        (nn.AvgPool2d(2), nn.Flatten(), False),
        (nn.MaxPool2d(2), nn.Identity(), False),
        (nn.MaxPool2d(2), lambda x: (x.flatten(1), x), False),
        (nn.MaxPool2d(2), lambda x: x.as_strided((3, 4), (4, 1)), False),
    ],
    ids=["pooled", "pooled with indices", "averaged", "images returned", "images returned too", "unknown operation"],
)
def test_models_that_pool_maxima_and_return_no_images_prefer_it(pool, end, preferred):
    model = Pooled(pool, end).eval()
    assert prefers_channels_last(trace(model, (IMAGES,)), model) is preferred


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


def test_a_small_model_is_pooled_in_channels_last_and_so_is_what_is_loaded(tmp_path):
    model = masked(FlatLeNet5())
    small = compress(model, IMAGES)
    assert shapes(small.model)["conv2.weight"] == (50, 18, 5, 5)
    small.save(tmp_path / "net.safetensors")
    for found in (small.model, load(tmp_path / "net.safetensors"), apply_plan_(small.plan, masked(FlatLeNet5()))):
        assert in_channels_last(found.conv2.weight)
        assert in_channels_last(found.conv2(found.conv1(IMAGES)))
        assert difference(model, found, IMAGES) < 1e-5
        assert difference(model, found, IMAGES.contiguous(memory_format=torch.channels_last)) < 1e-5


def test_a_forward_that_views_images_keeps_its_class_and_order():
    model = masked(LeNet5())
    small = compress(model, IMAGES)
    assert type(small.model) is LeNet5
    assert shapes(small.model)["conv2.weight"] == (10, 4, 5, 5)
    assert not small.plan.channels_last
    assert small.model.conv2.weight.is_contiguous()
    assert difference(model, small.model, IMAGES) < 1e-5


def test_a_graph_in_the_place_of_such_a_forward_has_it():
    model = masked(LeNet5())
    with torch.no_grad():
        model.conv2.weight[::2] = 0
    small = compress(model, IMAGES)
    assert small.plan.program is not None
    assert in_channels_last(small.model.conv2.weight)
    assert difference(model, small.model, IMAGES) < 1e-5


def test_a_model_in_training_stays_as_it_is():
    model = FlatLeNet5()
    vbdrop.convert_(model, vbdrop.Units())
    with torch.no_grad():
        model.conv2.gate.log_sigma2[:4] = 20
    assert not compress(model, IMAGES, rewrite=False).plan.channels_last
    plan = compress(model, IMAGES).plan
    assert plan.channels_last
    assert plan.program is None
    apply_plan_(plan, model)
    assert model.conv2.weight.shape == (50, 16, 5, 5)
    assert model.conv2.weight.is_contiguous()
