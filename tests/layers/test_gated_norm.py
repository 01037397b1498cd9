import copy
import pickle

import pytest
import torch
from torch import nn

from vbdrop.layers import CountedNorm, Gate, GatedNorm, SharedGate, Units
from vbdrop.layers.gated_norm import gate_norm_, gated_class

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))


def gated(norm, kind):
    torch.manual_seed(0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    gate = Gate(3, -1, Units(), torch.ones(1))
    gate_norm_(norm, kind, SharedGate(-1, {"stream": gate}, [gate], torch.tensor([0, 1, 2, 0])))
    with torch.no_grad():
        gate.weight.copy_(torch.tensor([0.5, 2.0, 1.5]))
        gate.log_sigma2[1] = 9.0
    return norm.eval()


CASES = {
    "layer": lambda: (nn.LayerNorm(4), "layer"),
    "unscaled": lambda: (nn.LayerNorm(4, elementwise_affine=False), "layer"),
    "rms": lambda: (nn.RMSNorm(4), "rms"),
    "group": lambda: (nn.GroupNorm(1, 4), "group"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_dead_channel_neither_counts_as_more_than_zero_nor_leaves(case):
    norm = gated(*CASES[case]())
    out, other = norm(X), X.clone()
    other[:, 1] += 7.0
    assert torch.equal(norm(other), out)
    assert torch.equal(out[:, 1], torch.zeros(6))


@pytest.mark.parametrize("case", CASES)
def test_the_plain_norm_gives_the_same_and_so_do_copies(case):
    norm = gated(*CASES[case]())
    wanted = norm(X)
    for twin in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert type(twin) is type(norm)
        assert torch.equal(twin(X), wanted)
        assert twin.gate.all_gates[0] is next(iter(twin.gate.own.values()))
    norm.make_plain_()
    assert isinstance(norm, CountedNorm)
    torch.testing.assert_close(norm(X), wanted, rtol=1e-5, atol=1e-6)


def test_without_its_gates_it_is_what_it_was():
    norm = gated(*CASES["layer"]())
    assert isinstance(norm, nn.LayerNorm)
    assert isinstance(norm, GatedNorm)
    norm.strip_()
    assert type(norm) is nn.LayerNorm
    assert list(norm.state_dict()) == ["weight", "bias"]
    assert gated_class(nn.LayerNorm) is gated_class(nn.LayerNorm)


def test_noise_is_drawn_for_each_sample_and_reaches_the_gates():
    norm = gated(*CASES["layer"]()).train()
    same = X[:1].expand(6, 4)
    out = norm(same)
    assert not torch.equal(out[0], out[1])
    out.square().sum().backward()
    (gate,) = norm.gate.all_gates
    assert gate.weight.grad.isfinite().all()
    assert (gate.log_sigma2.grad != 0).all()


@pytest.mark.parametrize("case", CASES)
def test_a_plain_state_dict_loads_strictly_and_starts_the_gates_afresh(case):
    norm = nn.Sequential(gated(*CASES[case]()))
    norm.load_state_dict(nn.Sequential(CASES[case]()[0]).state_dict())
    assert norm[0].gate.values().tolist() == [1.0, 1.0, 1.0, 1.0]
    trained = nn.Sequential(gated(*CASES[case]()))
    norm.load_state_dict(trained.state_dict())
    assert torch.equal(norm[0].gate.values(), trained[0].gate.values())


@pytest.mark.parametrize("case", CASES)
def test_a_part_of_a_state_dict_leaves_the_gates_alone(case):
    norm = nn.Sequential(gated(*CASES[case]()))
    before = norm[0].gate.values()
    norm.load_state_dict({}, strict=False)
    assert torch.equal(norm[0].gate.values(), before)


@pytest.mark.parametrize("case", CASES)
def test_a_plain_state_dict_can_be_assigned_on_the_meta_device_if_it_says_which_device_gates_take(case):
    plain, norm = CASES[case]()[0], gated(*CASES[case]()).to("meta")
    if case == "unscaled":
        with pytest.raises(RuntimeError, match=r"gate\.stream\.weight"):
            norm.load_state_dict(plain.state_dict(), assign=True)
    else:
        norm.load_state_dict(plain.state_dict(), assign=True)
        assert norm.gate.values().tolist() == [1.0, 1.0, 1.0, 1.0]
