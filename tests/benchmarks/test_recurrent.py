import torch
from benchmarks.recurrent import CLASSES, FEATURES, KINDS, Speaker, accuracy


def test_padding_does_not_count():
    torch.manual_seed(0)
    x = torch.randn(3, 6, FEATURES)
    x[1, 4:], x[2, 2:] = 0, 0
    longer = torch.cat([x, torch.zeros(3, 5, FEATURES)], 1)
    for kind in KINDS.values():
        model = Speaker(kind, hidden=4).eval()
        assert model(x).shape == (3, CLASSES)
        torch.testing.assert_close(model(longer), model(x))
        assert accuracy(model, x, model(x).argmax(1)) == 100.0
