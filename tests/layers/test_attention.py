import copy
import itertools

import pytest
import torch
from torch import nn

from vbdrop.analysis.graph import trace
from vbdrop.layers import Gate, SharedGate, Units
from vbdrop.layers.attention import OpenAttention, gate_attention_, open_, why_closed

KINDS = {
    "fused": {},
    "batch first": {"batch_first": True},
    "without a bias": {"bias": False, "batch_first": True},
    "other keys": {"kdim": 8, "vdim": 10, "batch_first": True},
}


def inputs(attention, same):
    """Query, key and value for four examples, in the order that the attention wants."""
    sizes = [(4, 5, 12)] * 3 if same else [(4, 5, 12), (4, 6, attention.kdim), (4, 6, attention.vdim)]
    values = [torch.randn(size) for size in sizes]
    if not attention.batch_first:
        values = [value.transpose(0, 1) for value in values]
    return [values[0]] * 3 if same else values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("same", [True, False])
def test_it_computes_what_torch_does(kind, same):
    torch.manual_seed(0)
    closed = nn.MultiheadAttention(12, 3, **KINDS[kind]).eval()
    if same and closed.kdim != 12:
        pytest.skip("its keys have another size than its queries")
    opened, (q, k, v) = open_(copy.deepcopy(closed)), inputs(closed, same)
    keys = 5 if same else 6
    masks = [None, torch.rand(5, keys) > 0.7, torch.randn(12, 5, keys)]
    padded = (torch.rand(4, keys) > 0.7) & (torch.arange(keys) > 0)
    masks[1][:, 0] = False
    for mask, pad, needed in itertools.product(masks, (None, padded), (True, False)):
        if pad is not None and mask is not None and mask.is_floating_point():
            pad = torch.zeros(4, keys).masked_fill(pad, -torch.inf)
        for average in (True, False):
            options = {"attn_mask": mask, "key_padding_mask": pad, "need_weights": needed}
            options["average_attn_weights"] = average
            (wanted, weights), (found, own) = closed(q, k, v, **options), opened(q, k, v, **options)
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(own, weights, rtol=1e-5, atol=1e-5)


def test_a_single_sequence():
    closed, x = nn.MultiheadAttention(6, 3).eval(), torch.randn(5, 6)
    opened = open_(copy.deepcopy(closed))
    for wanted, found in zip(closed(x, x, x), opened(x, x, x), strict=True):
        torch.testing.assert_close(found, wanted)


def test_a_padding_mask_leaves_the_batch_of_a_trace_free():
    class Padded(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = open_(nn.MultiheadAttention(6, 3, batch_first=True))

        def forward(self, x, pad):
            return self.attention(x, x, x, key_padding_mask=pad)[0]

    traced = trace(Padded().eval(), (torch.randn(2, 5, 6), torch.zeros(2, 5).bool()))
    assert traced.guards == {}
    assert all(isinstance(node.meta["val"].shape[0], torch.SymInt) for node in traced.results)


def test_a_padding_mask_of_another_shape_is_refused():
    attention, x = open_(nn.MultiheadAttention(6, 3)).eval(), torch.randn(5, 4, 6)
    with pytest.raises(ValueError, match=r"must have the shape \(4, 5\), examples and keys; got \(5, 4\)"):
        attention(x, x, x, key_padding_mask=torch.zeros(5, 4).bool())
    attention(x[:, 0], x[:, 0], x[:, 0], key_padding_mask=torch.zeros(5).bool())


def test_a_mask_for_heads_that_are_not_there_is_refused():
    x = torch.randn(5, 4, 6)
    with pytest.raises(ValueError, match="4 examples and 3 heads; got 8 masks"):
        open_(nn.MultiheadAttention(6, 3))(x, x, x, attn_mask=torch.zeros(8, 5, 5))


@pytest.mark.parametrize("needed", [True, False])
def test_the_hint_of_a_causal_mask_needs_the_mask(needed):
    """Without it, torch raises; to attend to what comes later would be wrong without a word."""
    torch.manual_seed(0)
    closed, x = nn.MultiheadAttention(12, 3, batch_first=True).eval(), torch.randn(2, 5, 12)
    opened = open_(copy.deepcopy(closed))
    for attention in (closed, opened):
        with pytest.raises(RuntimeError, match="is_causal"):
            attention(x, x, x, need_weights=needed, is_causal=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)
    wanted, found = (
        attention(x, x, x, need_weights=needed, attn_mask=mask, is_causal=True)[0] for attention in (closed, opened)
    )
    torch.testing.assert_close(found, wanted)


def test_what_cannot_be_opened_says_why():
    class Own(nn.MultiheadAttention):
        pass

    assert why_closed(nn.MultiheadAttention(6, 3)) is None
    assert why_closed(open_(nn.MultiheadAttention(6, 3))) is None
    assert "bias_k" in why_closed(nn.MultiheadAttention(6, 3, add_bias_kv=True))
    with pytest.raises(ValueError, match="Own is a subclass"):
        open_(Own(6, 3))


def test_its_parameters_are_those_of_torch():
    closed = nn.MultiheadAttention(6, 3)
    names, weight = list(closed.state_dict()), closed.in_proj_weight
    opened = open_(closed)
    assert isinstance(opened, OpenAttention)
    assert opened.in_proj_weight is weight
    assert list(opened.state_dict()) == names


def test_a_plain_state_dict_starts_the_gates_afresh_and_a_part_of_one_leaves_them():
    plain = nn.MultiheadAttention(4, 2)
    attention, gate = open_(copy.deepcopy(plain)), Gate(4, -1, Units(), torch.ones(1))
    gate_attention_(attention, SharedGate(-1, {"stream": gate}, [gate], torch.arange(4)))
    nn.init.constant_(gate.weight, 0.5)
    attention.load_state_dict({"out_proj.weight": plain.out_proj.weight}, strict=False)
    assert gate.weight.tolist() == [0.5] * 4
    attention.load_state_dict(plain.state_dict())
    assert gate.weight.tolist() == [1.0] * 4
