import copy
import pickle

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from vbdrop.layers import Gate, SharedGate, Units
from vbdrop.layers.shared_gate import own_gates


def gates(*sizes, **mode):
    return [Gate(size, -1, Units(**mode), torch.ones(1)) for size in sizes]


def test_inputs_of_one_gate_share_its_noise_and_samples_do_not():
    (gate,) = gates(2, log_sigma2=-2.0)
    shared = SharedGate(-3, {"a": gate}, [gate], torch.tensor([0, 1, 0, -1])).train()
    torch.manual_seed(0)
    out = shared(torch.ones(5, 4, 3, 2)).detach()
    assert torch.equal(out[:, 0], out[:, 2])
    assert torch.equal(out[:, 3], torch.ones(5, 3, 2))
    assert torch.equal(out, out[:, :, :1, :1].expand_as(out))
    assert len(set(out[:, 0, 0, 0].tolist())) == 5
    assert not torch.equal(out[:, 0], out[:, 1])


def test_the_noise_has_the_mean_and_variance_of_the_gate():
    a, b = gates(1, 1, log_sigma2=-2.0)
    shared = SharedGate(-1, {"a": a, "b": b}, [a, b], torch.tensor([0, 0, 1])).train()
    with torch.no_grad():
        b.weight.fill_(3.0)
    torch.manual_seed(0)
    n = 20000
    out = shared(torch.ones(n, 3)).detach()
    sd = torch.exp(torch.tensor(-1.0))
    assert torch.allclose(out.mean(0), torch.tensor([1.0, 1.0, 3.0]), atol=5 * float(sd) / n**0.5)
    assert torch.allclose(out.std(0), sd.expand(3), rtol=5 / (2 * n) ** 0.5)


def test_dead_gates_are_zero_in_eval_and_gradients_of_all_readers_add_up():
    (gate,) = gates(2)
    with torch.no_grad():
        gate.log_sigma2[1] = 5.0
    readers = [SharedGate(-1, {}, [gate], torch.tensor(index)).eval() for index in ([0, 1, 1], [1, 0])]
    total = sum(reader(torch.ones(1, len(reader.index))).sum() for reader in readers)
    assert total.item() == 2.0
    total.backward()
    assert gate.weight.grad[0] == 2.0
    assert readers[0].values().tolist() == [1.0, 0.0, 0.0]
    assert readers[0].values(threshold=9.0).tolist() == [1.0, 1.0, 1.0]


def test_a_gate_is_part_of_its_first_reader_and_copies_keep_it_shared():
    (gate,) = gates(2)
    model = nn.ModuleList(
        [SharedGate(-1, {"a": gate}, [gate], torch.arange(2)), SharedGate(-1, {}, [gate], torch.arange(2))]
    )
    assert list(model.state_dict()) == ["0.a.weight", "0.a.log_sigma2"]
    assert len(list(model.parameters())) == 2
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other[0].all_gates[0] is other[1].all_gates[0] is other[0].a
        assert other[0].a is not gate
    assert own_gates(model[1]) == {}
    assert own_gates(gate, "x.") == {"x.": gate}


def test_a_gate_that_is_not_sampled_has_no_noise_beside_one_that_is():
    """As where `vbdrop.sampling` is given a part of a model, which shares gates with the rest."""
    a, b = gates(1, 2, log_sigma2=-2.0)
    shared = SharedGate(-1, {"a": a, "b": b}, [a, b], torch.arange(3)).eval()
    a.sampling = True
    torch.manual_seed(0)
    out = shared(torch.ones(6, 3)).detach()
    assert torch.equal(out[:, 1:], torch.ones(6, 2))
    assert len(set(out[:, 0].tolist())) == 6


def test_a_moving_average_of_the_buffers_leaves_the_places_of_the_gates_alone():
    gate = Gate(16, axis=-1, mode=Units(), like=torch.ones(1))
    shared = SharedGate(-1, {"channels": gate}, [gate], torch.arange(16).flip(0)).eval()
    with torch.no_grad():
        gate.weight.copy_(torch.linspace(0.5, 2, 16))
    average = AveragedModel(shared, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True).eval()
    for _ in range(20):
        average.update_parameters(shared)
    x = torch.ones(1, 16)
    assert torch.allclose(average(x), shared(x))


def test_the_places_of_the_gates_survive_the_meta_device():
    gate = Gate(3, axis=-1, mode=Units(), like=torch.ones(1))
    shared = SharedGate(-1, {"channels": gate}, [gate], torch.tensor([2, 0, 1])).eval()
    state = shared.state_dict()
    shared.to("meta")
    assert shared(torch.ones(1, 3, device="meta")).shape == (1, 3)
    shared.to_empty(device="cpu").load_state_dict(state)
    assert shared.index.tolist() == [2, 0, 1]
