import copy
import pickle

import pytest
import torch
from torch import fx, nn

from vbdrop.compression.rewriting.program import ProgramError, build, decoded_tensor, encode, encoded_tensor

aten = torch.ops.aten


def example() -> tuple[fx.Graph, nn.Module]:
    root = nn.Module()
    root.block = nn.Sequential(nn.Linear(3, 3))
    graph = fx.Graph()
    x = graph.placeholder("x")
    flag = graph.create_node("placeholder", "flag", (True,))
    batch = graph.call_function(aten.sym_size.int, (x, 0))
    hidden = graph.call_module("block.0", (x,))
    hidden = graph.call_function(aten.clamp.default, (hidden, -float("inf"), 0.5))
    shaped = graph.call_function(aten.reshape.default, (hidden, [batch, 3, 1]))
    cast = graph.call_function(
        aten._to_copy.default, (shaped,), {"dtype": torch.float64, "device": torch.device("cpu")}
    )
    index = graph.create_node("get_attr", "index")
    graph.output({"a": (cast, [x]), "b": None, "c": graph.call_function(aten.index_select.default, (x, 1, index))})
    assert flag.op == "placeholder"
    return graph, root


BUFFERS = {"index": encoded_tensor(torch.tensor([2, 0]))}


def test_a_program_gives_the_same_module_again():
    graph, root = example()
    module = build(encode(graph), root, BUFFERS)
    x = torch.randn(4, 3)
    out = module(x)
    torch.testing.assert_close(out["a"][0], root.block(x).clamp(max=0.5).reshape(4, 3, 1).double())
    assert torch.equal(out["c"], x[:, [2, 0]])
    assert (out["b"], type(out["a"]), type(out["a"][1])) == (None, tuple, list)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(x)["a"][0], out["a"][0])


def test_small_tensors_are_data():
    for tensor in (torch.tensor([[1.5, float("inf")]]), torch.arange(3), torch.tensor(2.0), torch.zeros(0, 3)):
        again = decoded_tensor(encoded_tensor(tensor))
        assert again.dtype == tensor.dtype
        assert torch.equal(again, tensor)


def test_what_has_no_form_as_data_is_said():
    graph = fx.Graph()
    graph.output(graph.call_function(torch.sin, (graph.placeholder("x"),)))
    with pytest.raises(ProgramError, match="sin"):
        encode(graph)
    graph = fx.Graph()
    graph.output(graph.create_node("placeholder", "x", (slice(1, 2),)))
    with pytest.raises(ProgramError, match="slice"):
        encode(graph)


def changed(number: int, **change):
    graph, root = example()
    nodes = encode(graph)
    nodes[number] |= change
    return nodes, root


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (4, {"target": "os.system"}, "not one that a program can call"),
        (4, {"target": "aten.clamp_.default"}, "not one that a program can call"),
        (4, {"target": "aten.from_file.default"}, "not one that a program can call"),
        (4, {"target": "aten.nothing.default"}, "not one that a program can call"),
        (4, {"target": "aten.clamp"}, "not one that a program can call"),
        (4, {"target": "operator.attrgetter"}, "not one that a program can call"),
        (4, {"op": "call_method"}, "call_method"),
        (4, {"name": "x"}, "'x'"),
        (4, {"name": "import"}, "names that cannot be used"),
        (4, {"name": "a b"}, "a b"),
        (4, {"args": [{"node": "later"}]}, "cannot be read"),
        (4, {"args": [{"node": "x", "list": 1}]}, "one key"),
        (4, {"args": [{"dtype": "load"}]}, "cannot be read"),
        (4, {"args": None}, "must have"),
        (0, {"target": "x): import os; (y"}, "cannot be part of a model"),
        (3, {"target": "block.0; exit()"}, "cannot be part of a model"),
        (3, {"target": "block.7"}, "names the module .*which the model does not have"),
        (3, {"target": "block.0.double"}, "names the module .*which the model does not have"),
        (3, {"target": "block.0.__init__.__globals__.get"}, "names the module .*which the model does not have"),
        (3, {"target": "block.0.weight"}, "names the module .*which the model does not have"),
        (3, {"op": "get_attr", "target": "block.0"}, "names the tensor .*which the model does not have"),
        (3, {"op": "get_attr", "target": "block.0.__class__"}, "names the tensor .*which the model does not have"),
        (3, {"kwargs": {"a-b": 1}}, "names that cannot be used"),
    ],
)
def test_data_that_is_no_program_is_refused(number, change, message):
    nodes, root = changed(number, **change)
    with pytest.raises(ProgramError, match=message):
        build(nodes, root, BUFFERS)


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        ({}, "names the tensor .*which the model does not have"),
        ({"index": {"dtype": "int64", "shape": [3], "data": [1]}}, "1 values for the shape"),
        ({"index": {"dtype": "save", "shape": [1], "data": [1]}}, "cannot be read"),
        ({"index": {"dtype": "int64", "shape": [1], "data": ["a"]}}, "cannot be read"),
        ({"index": {"dtype": "int64", "shape": "1", "data": [1]}}, "must have"),
        ({"index": BUFFERS["index"], "block": BUFFERS["index"]}, "cannot add a buffer"),
    ],
)
def test_buffers_that_are_none_are_refused(buffers, message):
    graph, root = example()
    with pytest.raises(ProgramError, match=message):
        build(encode(graph), root, buffers)


def test_an_operation_outside_of_the_table_does_not_become_a_program():
    graph = fx.Graph()
    graph.output(graph.call_function(aten.bernoulli.default, (graph.placeholder("x"),)))
    with pytest.raises(ProgramError, match=r"aten.bernoulli.default is not one that a program can call"):
        encode(graph)


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_structures_are_nested_sixteen_deep_at_most(kind):
    def nest(value, depth):
        for _ in range(depth):
            value = {"list": [value], "tuple": {"tuple": [value]}, "dict": {"dict": {"a": value}}}[kind]
        return value

    nodes, root = changed(9, args=[nest({"node": "x"}, 16)])
    build(nodes, root, BUFFERS)
    nodes, root = changed(9, args=[nest({"node": "x"}, 17)])
    with pytest.raises(ProgramError, match="nested more than 16 deep"):
        build(nodes, root, BUFFERS)
    nodes, root = changed(9, args=[nest({"node": "x"}, 300)])
    with pytest.raises(ProgramError, match="nested more than 16 deep"):
        build(nodes, root, BUFFERS)
