"""What a target accepts, how it is read, and the size that it means."""

import pytest
import torch

import vbdrop
from vbdrop.targets.target import Target, parse_seconds


@pytest.mark.parametrize(
    ("arguments", "unit", "limit"),
    [
        ({"weights": 20}, "weights", 50.0),
        ({"parameters": 4}, "parameters", 250.0),
        ({"macs": 2.5}, "macs", 400.0),
        ({"max_weights": 70}, "weights", 70.0),
        ({"max_bytes": "2 kB"}, "bytes", 2000.0),
        ({"max_bytes": 300}, "bytes", 300.0),
        ({"max_macs": 2e6}, "macs", 2e6),
        ({"max_latency": "2 ms"}, "latency", 0.002),
    ],
)
def test_each_size_has_a_unit_and_a_limit(arguments, unit, limit):
    target = Target(**arguments)
    assert target.measured == unit
    assert target.limit_for(1000) == pytest.approx(limit)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "exactly one of .*; got none"),
        ({"weights": 2, "macs": 2}, "got weights and macs"),
        ({"weights": 1}, "times fewer, a number above 1; got 1"),
        ({"macs": True}, "times fewer"),
        ({"weights": float("nan")}, "times fewer"),
        ({"max_bytes": "50 things"}, "a size such as '20 kB'"),
        ({"max_bytes": 0}, "a number above 0; got 0"),
        ({"max_latency": "2 hours"}, "a time such as '2 ms'"),
        ({"max_latency": "0 ms"}, "a time such as '2 ms'"),
        ({"within": -0.1}, "a tolerance"),
        ({"weights": 2, "evaluate": len}, "belongs to `within`"),
        ({"weights": 2, "unit": "macs"}, "belongs to `within`"),
        ({"within": 1, "unit": "latency"}, "must be one of 'weights'"),
        ({"max_latency": 1.0, "only": lambda module, name: True}, "cannot be combined"),
        ({"macs": 2, "runtime": "tvm"}, "'onnx', 'torch', 'c'; got 'tvm'"),
        ({"macs": 2, "batch": 0}, "an int >= 1; got 0"),
        ({"macs": 2, "steps": 5, "epochs": 2}, "not both"),
        ({"macs": 2, "steps": 0}, "an int >= 1; got 0"),
        ({"macs": 2, "epochs": 0}, "above 0; got 0"),
        ({"macs": 2, "train": 0.8, "refine": 0.3}, "together more than 1"),
        ({"macs": 2, "refine": 1.5}, "a share of the run"),
    ],
)
def test_what_is_no_target_says_why(arguments, message):
    with pytest.raises(ValueError, match=message):
        Target(**arguments)


def test_functions_must_be_functions():
    with pytest.raises(TypeError, match="function"):
        Target(within=0.3, evaluate=3)
    with pytest.raises(TypeError, match="function"):
        Target(macs=2, only="conv")


def test_within_has_no_size_before_its_run():
    assert Target(within=0.3).measured == "macs"
    with pytest.raises(TypeError, match="no size"):
        Target(within=0.3).limit_for(10)


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("macs=5", Target(macs=5)),
        (" weights = 2.5 , refine=0", Target(weights=2.5, refine=0)),
        ("max_bytes=50 kB", Target(max_bytes="50 kB")),
        ("max_macs=2e6", Target(max_macs=2_000_000)),
        ("max_latency=2ms,runtime=torch,batch=64", Target(max_latency="2ms", runtime="torch", batch=64)),
        ("within=0.3,unit=weights", Target(within=0.3, unit="weights")),
    ],
)
def test_a_target_is_read_from_the_command_line(text, target):
    assert Target.parse(text) == target


@pytest.mark.parametrize("text", ["", "macs", "speed=5", "macs=5;refine=0", "macs=five", "batch=1.5,max_latency=1 ms"])
def test_what_cannot_be_read_says_what_a_target_looks_like(text):
    with pytest.raises(ValueError, match=r"must look like|must be a number"):
        Target.parse(text)


def test_a_text_that_names_a_size_twice_or_is_no_text_is_refused():
    with pytest.raises(ValueError, match="`macs` of a target must be given once; got 'macs=5,macs=3'"):
        Target.parse("macs=5,macs=3")
    with pytest.raises(TypeError, match="`text` of a target must be a string such as 'macs=5'; got 5"):
        Target.parse(5)


def test_a_long_input_is_not_printed():
    assert repr(Target(macs=2, example_inputs=torch.zeros(3))) == "Target(macs=2, example_inputs=...)"


def test_seconds():
    assert parse_seconds("1.5 s") == 1.5
    assert parse_seconds("3µs") == pytest.approx(3e-6)


def test_it_is_public():
    assert vbdrop.Target is Target
