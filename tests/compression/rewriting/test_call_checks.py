import pytest
import torch
from torch import fx

from vbdrop.compression.rewriting.call_checks import ANY, NUMBER, TENSOR, TENSORS, CallError, check_call

GRAPH = fx.Graph()
X, Y, N, PARTS = (GRAPH.placeholder(name) for name in ("x", "y", "n", "parts"))
KINDS = {X: ANY, Y: TENSOR, N: NUMBER, PARTS: TENSORS}


@pytest.mark.parametrize(
    ("target", "args", "kind"),
    [
        ("aten.add.Tensor", (X, Y), TENSOR),
        ("aten.add.Tensor", (X, 1.5), TENSOR),
        ("aten.linear.default", (X, Y, None), TENSOR),
        ("aten.reshape.default", (X, [N, -1, 4]), TENSOR),
        ("aten.slice.Tensor", (X, 1, 0, 2**63 - 1), TENSOR),
        ("aten.split.Tensor", (X, 2, 1), TENSORS),
        ("aten.max.dim", (X, 1), TENSORS),
        ("aten.sym_size.int", (X, 0), NUMBER),
        ("aten.cat.default", ([X, Y], 1), TENSOR),
        ("aten.cat.default", (PARTS, 1), TENSOR),
        ("aten.index.Tensor", (X, [None, Y]), TENSOR),
        ("aten._to_copy.default", (X,), TENSOR),
        ("aten.einsum.default", ("bij,bjk->bik", [X, Y]), TENSOR),
        ("aten.clamp.default", (X, -float("inf"), 0.5), TENSOR),
        ("aten.full.default", ([N, 1024], 0.0), TENSOR),
        ("aten.arange.start", (0, N), TENSOR),
        ("operator.mul", (N, 2), NUMBER),
        ("operator.getitem", (PARTS, 0), TENSOR),
        ("operator.getitem", (X, "key"), ANY),
    ],
)
def test_what_a_program_writes_is_accepted(target, args, kind):
    assert check_call(target, args, {}, KINDS) == kind


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "message"),
    [
        ("aten.relu.default", (), {}, "must have its argument `self`"),
        ("aten.relu.default", (X, 1), {}, "cannot have 2 arguments"),
        ("aten.relu.default", (X,), {"self": X}, "cannot have 1 arguments and"),
        ("aten.relu.default", (X,), {"out": X}, "cannot have 1 arguments and"),
        ("aten.relu.default", (PARTS,), {}, "`self` .* must be Tensor, .* got the value of 'parts'"),
        ("aten.relu.default", ("x",), {}, "must be Tensor, .* got 'x'"),
        ("aten.transpose.int", (X, 0, 10**6), {}, "`dim1` .* in range; got 1000000"),
        ("aten.transpose.int", (X, 0, True), {}, "must be int"),
        ("aten.transpose.int", (X, 0, 1.0), {}, "must be int"),
        ("aten.slice.Tensor", (X, 1, 0, 2**63), {}, "in range"),
        ("aten.reshape.default", (X, [Y]), {}, "`size|shape` .* must be int"),
        ("aten.reshape.default", (X, "ab"), {}, "must be int"),
        ("aten.repeat.default", (X, [2**31]), {}, "`repeats` .* in range"),
        ("aten.cat.default", ([X] * 5000,), {}, "at most 4096 entries; got 5000"),
        ("aten.full.default", ([2**23], 0.0), {}, "at most 4194304 elements; got the sizes"),
        ("aten.zeros.default", ([2**12, 2**12, N],), {}, "at most 4194304 elements"),
        ("aten.arange.default", (2**40,), {}, "at most 4194304 elements; got 1.1e"),
        ("aten.arange.start_step", (0, 1, 1e-9), {}, "at most 4194304 elements"),
        ("aten.arange.start_step", (0, 1, 0), {}, "at most 4194304 elements; got inf"),
        ("aten.eye.default", (4096,), {}, "at most 4194304 elements"),
        ("aten.dropout.default", (X, 0.5, True), {}, "`train` .* got True"),
        ("aten._to_copy.default", (X,), {"dtype": torch.complex64}, "`dtype`"),
        ("aten._to_copy.default", (X,), {"dtype": torch.qint8}, "`dtype`"),
        ("aten._to_copy.default", (X,), {"layout": torch.sparse_coo}, "`layout`"),
        ("aten._to_copy.default", (X,), {"device": torch.device("meta")}, "`device`"),
        ("aten._to_copy.default", (X,), {"pin_memory": True}, "`pin_memory`"),
        ("aten.gelu.default", (X,), {"approximate": "exact"}, "one of none, tanh"),
        ("aten.einsum.default", ("ij{}", [X, Y]), {}, "`equation`"),
        ("aten.upsample_nearest2d.vec", (X, None, [1e-300, 1.0]), {}, "`scale_factors` .* in range"),
        ("operator.mul", (X, 2), {}, "must have numbers; got the value of 'x'"),
        ("operator.mul", ("ab", 2), {}, "must have numbers; got 'ab'"),
        ("operator.mul", (PARTS, 10**9), {}, "must have numbers"),
        ("operator.neg", (N, N), {}, "must have 1 arguments; got 2"),
        ("operator.getitem", (Y, 0), {}, "several tensors to choose from"),
        ("operator.getitem", (X, X), {}, "a position or a name"),
        ("aten.relu_.default", (X,), {}, "not one that a program can call"),
    ],
)
def test_any_other_call_is_refused_with_the_reason(target, args, kwargs, message):
    with pytest.raises(CallError, match=message):
        check_call(target, args, kwargs, KINDS)
