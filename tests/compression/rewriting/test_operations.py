import builtins
import operator
import os
import subprocess

import pytest
import torch
from torch import nn

from vbdrop.compression.rewriting.operations import (
    ARITHMETIC_ON_SIZES,
    OPERATIONS,
    find_operation,
    function_of,
    overload_of,
)
from vbdrop.compression.rewriting.program import ProgramError, build

TABLE = [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in OPERATIONS]


def every_overload() -> list[str]:
    """All overloads of all ATen operations that this torch has, and the functions of Python's own modules."""
    packets = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    found = []
    for packet in sorted(packets):
        overloads = getattr(torch.ops.aten, packet).overloads()
        found += [f"aten.{packet}.{overload}" for overload in overloads]
    for module in (builtins, operator, os, subprocess, torch):
        found += [f"{module.__name__}.{name}" for name in dir(module)]
    return found


def test_no_operation_outside_of_the_table_can_be_named():
    known = {*TABLE, *(f"operator.{name}" for name in ARITHMETIC_ON_SIZES)}
    every = every_overload()
    assert len(every) > 3000
    assert {target for target in every if find_operation(target) is not None} == known & set(every)
    root = nn.Linear(2, 2)
    for target in [each for each in every if each not in known]:
        nodes = [
            {"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}},
            {"name": "y", "op": "call_function", "target": target, "args": [{"node": "x"}], "kwargs": {}},
            {"name": "z", "op": "output", "target": "output", "args": [{"node": "y"}], "kwargs": {}},
        ]
        with pytest.raises(ProgramError, match="is not one that a program can call"):
            build(nodes, root, {})


@pytest.mark.parametrize("target", TABLE)
def test_what_is_in_the_table_changes_nothing_and_draws_nothing(target):
    schema = overload_of(target)._schema
    assert not schema.is_mutable
    assert not any("Generator" in str(argument.real_type) for argument in schema.arguments)
    words = {argument.name for argument in schema.arguments if "str" in str(argument.real_type)} - {"equation"}
    assert find_operation(target).words.keys() == words


@pytest.mark.parametrize(
    "target",
    ["", "aten", "aten.relu", "aten..default", "aten.relu.out", "operator.pow", "operator.", "torch.relu.default"],
)
def test_what_only_looks_like_a_name_of_the_table_is_not_in_it(target):
    assert find_operation(target) is None
    with pytest.raises(KeyError):
        function_of(target)


def test_an_operation_that_trusts_its_arguments_is_called_through_its_checks():
    for target in ("aten.lstm.input", "aten.gru.input", "aten.scaled_dot_product_attention.default", "operator.mul"):
        assert function_of(target).__module__ == "vbdrop.compression.rewriting.checked_calls"
    assert function_of("aten.relu.default") is torch.ops.aten.relu.default
