import json

import numpy as np
import pytest
import torch

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.limits import Limits
from vbdrop.compression.files.plan_codec import lengthen, shorten
from vbdrop.compression.planning.plan import ForwardProgram, Merge, Plan
from vbdrop.compression.rewriting.program import decoded_tensor

NODES = [
    {"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}},
    {"name": "scale", "op": "get_attr", "target": "scale", "args": [], "kwargs": {}},
    {
        "name": "mul",
        "op": "call_function",
        "target": "aten.mul.Tensor",
        "args": [{"node": "x"}, {"tuple": [{"node": "scale"}, 2, None]}],
        "kwargs": {"dtype": {"dtype": "float32"}},
    },
    {"name": "output", "op": "output", "target": "output", "args": [{"node": "mul"}], "kwargs": {}},
]
BUFFERS = {
    "inputs": {"dtype": "int64", "shape": [3], "data": [0, 2, 5]},
    "scale": {"dtype": "float32", "shape": [2, 1], "data": [0.5, 1.5]},
    "order": {"dtype": "int64", "shape": [3], "data": [2, 0, 1]},
}
PLAN = Plan(
    keep={"fc.weight": {0: [0, 2, 5], 1: [1]}, "fc2.weight": {1: [0, 2, 5]}},
    add={"fc.bias": [1.0, 2.0, 3.0], "fc2.bias": [0.1, 0.2]},
    merge={"fc.weight": [Merge(1, 0, [1], [2.0], (0, 6))]},
    attributes={"fc": {"out_features": 3}},
    shapes={"fc.weight": [6, 4], "fc2.weight": [2, 6], "fc2.bias": [2]},
    positions={"fc.weight": 1},
    program=ForwardProgram(NODES, BUFFERS, ["gone"]),
    channels_last=True,
)
TENSORS = {"fc.bias": torch.ones(3), "scale": torch.tensor([[0.5], [1.5]]), "order": torch.tensor([2, 0, 1])}


def test_what_cuts_a_model_comes_back_and_what_was_folded_does_not():
    data, lists = shorten(PLAN)
    plan = lengthen(json.loads(json.dumps(data)), lists, TENSORS)
    assert plan.keep == PLAN.keep
    assert plan.shapes == PLAN.shapes
    assert plan.attributes == PLAN.attributes
    assert plan.program.nodes == NODES
    assert plan.program.removed == ["gone"]
    assert plan.program.buffers.keys() == BUFFERS.keys()
    for name, entry in plan.program.buffers.items():
        assert torch.equal(decoded_tensor(entry), decoded_tensor(BUFFERS[name]))
    assert plan.channels_last
    assert plan.add == {"fc.bias": [0.0] * 3}  # a new bias; its values are those of the tensor
    assert plan.merge == {}


def test_each_list_is_kept_once():
    data, lists = shorten(PLAN)
    assert [each.tolist() for each in lists] == [[0, 2, 5], [1]]
    assert data["buffers"] == {"inputs": ["int64", [3], 0], "scale": ["float32", [2, 1]], "order": ["int64", [3]]}


def test_an_empty_plan_is_empty():
    assert shorten(Plan()) == ({}, [])
    assert lengthen({}, [], {}) == Plan()


def without(key: str) -> dict:
    data = json.loads(json.dumps(shorten(PLAN)[0]))
    del data[key]
    return data


def changed(*path_and_value) -> dict:
    *path, last, value = path_and_value
    data = json.loads(json.dumps(shorten(PLAN)[0]))
    part = data
    for key in path:
        part = part[key]
    part[last] = value
    return data


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "plan",
        changed("cut", "fc.weight", 1, "0", 9),
        changed("cut", "fc.weight", 1, "0", -1),
        changed("cut", "fc.weight", 1, "0", "x"),
        changed("cut", "fc.weight", 1, "7", 0),
        changed("cut", "fc.weight", 0, [4, 4]),
        changed("cut", "fc.weight", []),
        changed("cut", "fc.weight", None),
        changed("cut", []),
        changed("new", ["elsewhere.bias"]),
        changed("new", 3),
        changed("set", {"fc": {"out_features": -1}}),
        changed("set", {"fc": [3]}),
        changed("nodes", 2, 3, 0, "#", 17),
        changed("nodes", 2, 3, 0, "#", "x"),
        changed("nodes", 2, []),
        changed("nodes", 2, None),
        changed("nodes", 7),
        changed("nodes", []),
        changed("nodes", 3, ["other", "call_module", "fc", [{"#": 2}]]),
        changed("nodes", 0, ["first", "output", "output", []]),
        without("nodes"),
        changed("buffers", "inputs", 2, 17),
        changed("buffers", "inputs", []),
        changed("buffers", "inputs", ["int64", [3], 0, 0]),
        changed("buffers", {"missing": ["int64", [1]]}),
        changed("removed", [1]),
    ],
    ids=str,
)
def test_what_is_no_plan_is_an_error(data):
    with pytest.raises(FileFormatError):
        lengthen(data, shorten(PLAN)[1], TENSORS)


def test_a_new_bias_is_as_long_as_its_tensor_whatever_the_file_says():
    data, lists = shorten(PLAN)
    assert lengthen(data, lists, {**TENSORS, "fc.bias": torch.ones(5)}).add == {"fc.bias": [0.0] * 5}


def test_a_list_counts_as_often_as_it_is_named():
    positions = np.arange(50_000)
    data = {"cut": {f"t{i}": [[50_000], {"0": 0}] for i in range(4)}}
    with pytest.raises(FileFormatError, match="names 200,000 indices; 160,000 are allowed in a file of 0 bytes"):
        lengthen(data, [positions], {})
    assert len(lengthen(data, [positions], {}, Limits(file=10**7)).keep) == 4
    data = {"nodes": [], "buffers": {f"b{i}": ["int64", [50_000], 0] for i in range(4)}}
    with pytest.raises(FileFormatError, match="names 200,000 indices"):
        lengthen(data, [positions], {})
    with pytest.raises(FileFormatError, match="names 200,000 indices"):
        lengthen({"new": ["bias"]}, [], {"bias": torch.zeros(200_000)})


def test_a_program_that_is_too_long_for_its_file_is_refused():
    nodes = [[f"n{i}", "placeholder", f"n{i}"] for i in range(1501)]
    with pytest.raises(FileFormatError, match="has 1,501 nodes; 1,500 are allowed"):
        lengthen({"nodes": nodes}, [], {})
