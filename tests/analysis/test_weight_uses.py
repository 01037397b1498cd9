import torch
from tests.compression.nets import NETS
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vbdrop.analysis.graph import trace
from vbdrop.analysis.weight_uses import positions


def macs(model: nn.Module, x: torch.Tensor) -> int:
    counts = positions(trace(model, (x,)))
    return sum(count * model.get_parameter(name).numel() for name, count in counts.items())


def test_multiply_adds_are_those_that_torch_counts():
    for name in ("lenet5", "resnet", "mobilenet", "unet"):
        model, x = NETS[name].build().eval(), NETS[name].example()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(x)
        assert macs(model, x) == counter.get_total_flops() // (2 * len(x)), name


def test_each_step_each_vector_and_each_use_counts():
    lstm = NETS["lstm"].build().eval()
    found = positions(trace(lstm, (NETS["lstm"].example(),)))
    assert found == {
        "embed.weight": 0,
        "lstm.weight_ih_l0": 7,
        "lstm.weight_hh_l0": 7,
        "head.0.weight": 1,
        "head.2.weight": 1,
    }
    layer = nn.Linear(4, 4)
    (uses,) = positions(trace(nn.Sequential(layer, nn.ReLU(), layer).eval(), (torch.zeros(2, 5, 4),))).values()
    assert uses == 10
    transformer = NETS["transformer"].build().eval()
    found = positions(trace(transformer, (NETS["transformer"].example(),)))
    assert found["encoder.layers.0.self_attn.in_proj_weight"] == 5
    assert found["head.0.weight"] == 1
