import torch
from torch import nn

import vbdrop
from vbdrop.compression import sweep


def test_a_threshold_gives_the_score_and_the_size_of_the_masked_model():
    model = nn.Sequential(nn.Linear(10, 4), nn.ReLU(), nn.Linear(4, 2)).train()
    vbdrop.convert_(model, vbdrop.Weights())
    with torch.no_grad():
        for layer in (model[0], model[2]):
            spread = torch.linspace(-5, 5, layer.weight.numel()).view_as(layer.weight)
            layer.log_sigma2.copy_(spread + layer.weight.square().log())
    seen = []

    def evaluate(plain):
        seen.append((type(plain[0]), plain.training, torch.is_grad_enabled()))
        return float(torch.count_nonzero(plain[0].weight))

    points = sweep(model, evaluate, [5.5, 0, -5.5])
    assert [point.threshold for point in points] == [5.5, 0.0, -5.5]
    assert [point.nonzeros for point in points] == [48, 24, 0]
    assert [point.score for point in points] == [40, 20, 0]
    assert [point.weights for point in points] == [48] * 3
    assert [point.bytes for point in points] == [48 * 4 + 24, 24 * 4 + 6 + 24, 6 + 24]  # and six biases
    assert [point.compression for point in points] == [1, 2, 48]
    assert seen == [(nn.Linear, False, False)] * 3
    assert model.training
