"""Layers whose results nothing reads are in the trace, follow the sizes of what they read, and stay exact."""

import pytest
import torch
from torch import Tensor, nn

import vbdrop
from vbdrop.analysis.graph import trace
from vbdrop.analysis.unread_layers import results_returned, unread_layers
from vbdrop.compression import Compressed
from vbdrop.layers import Gate


class Tagger(nn.Module):
    """A stream of 8 channels with a block, a pooler that nothing reads, and a head for every position."""

    def __init__(self, pooler: nn.Module | None = None) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(12, 8), nn.LayerNorm(8)
        self.up, self.down = nn.Linear(8, 128), nn.Linear(128, 8)
        self.pooler = nn.Linear(8, 5) if pooler is None else pooler
        self.head = nn.Linear(8, 3)
        self.idle = nn.Linear(8, 8)

    def encode(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        stream = self.norm(self.table(tokens))
        stream = stream + self.down(self.up(stream).relu())
        return stream, torch.tanh(self.pooler(stream[:, 0]))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encode(tokens)[0])


TOKENS = torch.randint(0, 12, (4, 6), generator=torch.Generator().manual_seed(0))


def shrunk(model: Tagger) -> tuple[Tagger, Compressed]:
    """A converted tagger of which some channels of every group are dead, and its compressed model."""
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=(TOKENS,))
    gates = {id(gate): gate for name, gate in model.named_modules() if isinstance(gate, Gate)}
    for gate in gates.values():
        with torch.no_grad():
            gate.log_sigma2[1::3] = 20.0
    return model, vbdrop.compress(model.eval(), (TOKENS,), recalibrate=False)


@pytest.mark.parametrize("pooler", [nn.Linear(8, 5), nn.LayerNorm(8), nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 2))])
def test_a_model_with_an_unread_layer_keeps_its_forward(pooler: nn.Module) -> None:
    torch.manual_seed(1)
    model, small = shrunk(Tagger(pooler))

    assert small.plan.program is None
    assert small.model.head.in_features < 8
    longer = torch.cat([TOKENS, TOKENS], 1)
    torch.testing.assert_close(small.model(longer), model(longer))


def test_what_an_unread_layer_computes_is_exact_too() -> None:
    torch.manual_seed(1)
    model, small = shrunk(Tagger())

    assert small.model.pooler.in_features < 8
    torch.testing.assert_close(small.model.encode(TOKENS)[1], model.encode(TOKENS)[1])


def test_an_unread_layer_keeps_a_channel_that_nothing_else_reads() -> None:
    torch.manual_seed(1)
    model = Tagger().eval()
    with torch.no_grad():
        model.head.weight[:, 2] = 0.0
        model.up.weight[:, 2] = 0.0
        model.up.weight[5:] = model.up.bias[5:] = 0.0  # otherwise there is nothing to remove
    small = vbdrop.compress(model, (TOKENS,), recalibrate=False, rewrite=False)

    assert small.model.up.out_features == 5
    torch.testing.assert_close(small.model.encode(TOKENS)[1], model.encode(TOKENS)[1])


def test_a_trace_shows_unread_layers_and_restores_the_model() -> None:
    model = Tagger().eval()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    traced = trace(model, (TOKENS,))

    assert [tuple(node.meta["val"].shape[1:]) for node in traced.unread] == [(5,)]
    assert [tuple(node.meta["val"].shape[2:]) for node in traced.results] == [(3,)]
    assert {name: dict(vars(module)) for name, module in model.named_modules()} == before
    assert not any(module._forward_hooks for module in model.modules())


def test_a_layer_that_is_not_called_is_not_unread() -> None:
    model = Tagger().eval()
    read = [name for name, _ in model.named_parameters() if not name.startswith(("pooler", "idle"))]

    assert unread_layers(model, read, (TOKENS,), {}) == [model.pooler]


def test_a_weight_that_is_read_under_another_name_is_read() -> None:
    model = Tagger().eval()
    model.idle.weight, model.idle.bias = model.head.weight, model.head.bias

    assert trace(model, (TOKENS,)).unread
    assert unread_layers(model, ["head.weight"], (TOKENS,), {})[-1] is model.pooler
    assert model.idle not in unread_layers(model, ["head.weight"], (TOKENS,), {})


def test_an_own_forward_is_restored_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    own = model.forward = lambda x: x + 1
    with pytest.raises(ZeroDivisionError), results_returned(model, [model[0]]):
        raise ZeroDivisionError

    assert model.forward is own
    assert not model[0]._forward_hooks
