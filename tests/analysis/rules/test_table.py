import inspect

import torch

from vbdrop.analysis.rules import RULES


def test_every_rule_is_of_an_operation_that_exists():
    assert [name for name in RULES if not hasattr(torch.ops.aten, name)] == []


def test_every_rule_takes_the_flow_and_a_node():
    assert all(list(inspect.signature(rule).parameters) == ["facts", "node"] for rule in RULES.values())
