import pytest
import torch
from torch import nn

from vbdrop.objective.autograd_graph import reads, walk
from vbdrop.objective.penalties import without_penalties

PENALTIES = {
    "L2": lambda ws: sum(w.square().sum() for w in ws),
    "L1 of means": lambda ws: sum(w.abs().mean() for w in ws),
    "elastic": lambda ws: sum(0.5 * (w * w).sum() + w.abs().sum() for w in ws),
    "norm": lambda ws: sum(w.norm() for w in ws),
    "norms together": lambda ws: torch.stack(torch._foreach_norm(ws)).sum(),
    "one vector": lambda ws: nn.utils.parameters_to_vector(ws).norm(p=1),
    "groups": lambda ws: sum(w.flatten(1).square().sum(1).sqrt().sum() for w in ws),
    "largest": lambda ws: sum(w.t().reshape(-1).abs().amax() for w in ws),
}

READS = {
    "product": lambda w, x: nn.functional.linear(x, w).square().mean(),
    "elementwise": lambda w, x: (x * w[0]).sum(1).square().mean(),
    "embedding": lambda w, x: nn.functional.embedding(torch.tensor([0, 1]), w).square().mean(),
    "index": lambda w, x: w[torch.tensor([0, 1])].sum(),
    "input with a gradient": lambda w, x: (x.clone().requires_grad_() * w[:1]).sum(),
    "distance": lambda w, x: (w - x[:1]).square().sum(),
}


def reads_left(loss, layer):
    found = reads(walk(without_penalties(loss.grad_fn, layer.parameters())), [layer.weight])
    return len(found[id(layer.weight)])


@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
def test_a_penalty_is_left_out_and_the_rest_stays(penalty):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.randn(5, 3)
    nll, penalties = model(x).square().mean(), penalty([layer.weight for layer in model])
    for loss in (nll + 1e-4 * penalties, (penalties - (-nll)) / 4, (nll + penalties).double().reshape(1).reshape(())):
        expected = reads(walk([nll.grad_fn]), model.parameters())
        assert reads(walk(without_penalties(loss.grad_fn, model.parameters())), model.parameters()) == expected


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_may_depend_on_an_input_is_no_penalty(read):
    torch.manual_seed(0)
    layer = nn.Linear(3, 4)
    assert reads_left(read(layer.weight, torch.randn(5, 3)), layer) > 0
    assert reads_left(0.1 * layer.weight.abs().sum() + read(layer.weight, torch.randn(5, 3)), layer) > 0


def test_a_parameter_of_something_else_may_be_an_input():
    layer, other = nn.Linear(3, 4), nn.Parameter(torch.randn(4, 3))
    assert reads_left((layer.weight * other).sum(), layer) == 1
