import pytest
import torch
from benchmarks.torch_pruning import WIDTHS, ResNet20, channels, macs, selections
from tests.stress import only_in_stress
from torch import nn

import vbdrop


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.randn(2, 1, 28, 28)


def test_the_network_has_the_multiply_adds_of_a_resnet_20(images):
    model = ResNet20().eval()
    first = 28 * 28 * 9 * 16 * (1 + 6 * 16)
    second = 14 * 14 * 32 * (9 * 16 + 5 * 9 * 32 + 16)
    third = 7 * 7 * 64 * (9 * 32 + 5 * 9 * 64 + 32)
    assert macs(model, images) == first + second + third + 640
    assert channels(model) == {f"stage {i + 1}": [width] * 4 for i, width in enumerate(WIDTHS)}


@only_in_stress
def test_with_shared_gates_a_stage_loses_channels_in_all_of_its_blocks_and_nothing_is_selected(images):
    torch.manual_seed(0)
    model = ResNet20()
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=images)
    gate = next(module for name, module in model.named_modules() if name.endswith("stages_1_0_shortcut_channels"))
    with torch.no_grad():
        gate.log_sigma2[:12] = 20.0
    small = vbdrop.compress(model, images).model
    assert channels(small)["stage 2"] == [20, 32, 32, 32]
    second: nn.Module = small.get_submodule("stages.1")
    written = {block.get_submodule("conv2").out_channels for block in second.children()}
    read = {block.get_submodule("conv1").in_channels for block in list(second.children())[1:]}
    assert written == read == {20}
    assert selections(small, images) == 0
