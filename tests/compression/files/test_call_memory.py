import copy

import pytest
import torch
from torch import fx, nn

from vbdrop.compression.files.call_memory import PER_BYTE, PER_WHOLE_NUMBER, CallMemory


def repeating(times: int, free: int) -> fx.GraphModule:
    """A model whose one call makes ``times`` as many floats as it has inputs."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    cast = graph.call_function(torch.ops.aten._to_copy.default, (x,), {"dtype": torch.float32})
    graph.output(graph.call_function(torch.ops.aten.repeat.default, (cast, [times])))
    model = fx.GraphModule(nn.Module(), graph)
    CallMemory(free).attach(model)
    return model


def test_what_the_inputs_justify_is_allowed_and_no_more():
    x = torch.rand(10)  # a copy of its 40 bytes, and what is repeated
    assert repeating(PER_BYTE - 1, free=0)(x).shape == (10 * (PER_BYTE - 1),)
    with pytest.raises(ValueError, match=r"would take more than 81,920 bytes of memory; .*max_call_bytes"):
        repeating(PER_BYTE, free=0)(x)
    assert len(repeating(PER_BYTE, free=40)(x)) == 10 * PER_BYTE
    tokens = torch.arange(10)
    assert len(repeating(PER_WHOLE_NUMBER // 4 - 1, free=0)(tokens)) > 0
    with pytest.raises(ValueError, match="would take more than 655,360 bytes"):
        repeating(PER_WHOLE_NUMBER // 4, free=0)(tokens)


def test_each_new_shape_is_checked():
    model = repeating(10**6, free=10**9)
    model(torch.rand(2))
    model(torch.rand(2))
    with pytest.raises(ValueError, match="would take more than"):
        model(torch.rand(1000))


def test_what_is_freed_does_not_count():
    graph = fx.Graph()
    value = graph.placeholder("x")
    for _ in range(50):
        value = graph.call_function(torch.ops.aten.exp.default, (value,))
    graph.output(value)
    model = fx.GraphModule(nn.Module(), graph)
    CallMemory(free=-4000 * PER_BYTE + 3 * 4000).attach(model)
    model(torch.rand(1000))


def test_the_check_survives_copies_and_is_not_traced():
    model = repeating(10**6, free=0)
    for other in (copy.deepcopy(model), copy.deepcopy(copy.deepcopy(model))):
        with pytest.raises(ValueError, match="would take more than"):
            other(torch.rand(10))
    program = torch.export.export(repeating(3, free=10**6), (torch.rand(4),))
    assert [str(node.target) for node in program.graph.nodes if node.op == "call_function"][-1] == "aten.repeat.default"


def test_an_error_of_the_forward_is_raised_and_not_logged(caplog):
    model = fx.symbolic_trace(nn.Linear(4, 2))
    CallMemory(free=10**6).attach(model)
    with pytest.raises(RuntimeError):
        model(torch.rand(3, 5))
    assert caplog.records == []
