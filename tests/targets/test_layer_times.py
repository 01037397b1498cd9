"""The times of a layer over its channels: interpolated between what was measured."""

import pytest
import torch
from torch import nn

from vbdrop.targets.layer_times import LayerTimes, _onnx_case, time_layer, undisturbed

TIMES = LayerTimes([1, 8, 16], [1, 32], [[1.0, 2.0], [2.0, 4.0], [3.0, 8.0]], (1, 8))


def test_times_are_interpolated_on_either_side():
    assert TIMES(16, 32) == 8
    assert TIMES(8, 1, smooth=True) == 2
    assert TIMES(12, 32) == 6  # between 4 and 8
    assert TIMES(0, 1, smooth=True) == pytest.approx(1 - 1 / 7)  # straight on below what was measured


def test_channels_within_a_block_take_the_time_of_the_whole_block():
    assert TIMES(16, 25) == TIMES(16, 32) > TIMES(16, 24)
    assert TIMES(16, 25, smooth=True) < TIMES(16, 32, smooth=True)


def test_slopes_say_what_one_channel_saves_and_never_less_than_nothing():
    assert TIMES.slopes(16, 32) == pytest.approx((4 / 8, 5 / 31))
    flat = LayerTimes([1, 16], [1, 16], [[3.0, 3.0], [2.0, 2.0]], (1, 1))
    assert flat.slopes(16, 16) == (0, 0)


def test_groups_go_in_step():
    times = time_layer(nn.Conv2d(8, 8, 3, groups=8), (1, 8, 6, 6), "torch")
    assert times.inputs == []
    assert times(8, 4) == times(1, 4) == pytest.approx(times(8, 8) / 2)


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_layer_of_any_precision_is_timed_in_float32(groups, dtype):
    layer = nn.Conv2d(8, 8, 3, groups=groups).to(dtype)
    assert time_layer(layer, (1, 8, 6, 6), "torch")(8, 8) > 0
    assert layer.weight.dtype == dtype


@pytest.mark.parametrize("runtime", ["onnx", "torch", "c"])
def test_a_larger_layer_takes_longer(runtime):
    if runtime == "onnx":
        pytest.importorskip("onnxruntime")
    times = time_layer(nn.Conv2d(32, 32, 3, padding=1), (1, 32, 16, 16), runtime)
    assert times.inputs[-1] == times.outputs[-1] == 32
    assert times(32, 32) > 2 * times(1, 1)  # 1,024 times as many products


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(6, 4), (2, 6)),
        (nn.Linear(6, 4), (2, 3, 6)),
        (nn.Linear(6, 4, bias=False), (2, 3, 6)),
        (nn.Conv1d(4, 6, 3, stride=2, padding=1), (1, 4, 9)),
        (nn.Conv2d(4, 6, 3, padding="same"), (1, 4, 5, 5)),
        (nn.Conv2d(4, 8, 3, groups=2), (1, 4, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 2, stride=2), (1, 4, 5, 5)),
    ],
)
def test_the_graph_that_is_timed_is_the_layer(layer, shape, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    _onnx_case(layer, shape, tmp_path / "layer")
    x = torch.rand(*shape)
    (y,) = onnxruntime.InferenceSession(tmp_path / "layer.onnx").run(None, {"x": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), layer(x).detach(), atol=1e-5, rtol=1e-5)


def test_a_disturbed_call_does_not_count():
    assert undisturbed([1.0] * 15 + [100.0] * 85) == 1
