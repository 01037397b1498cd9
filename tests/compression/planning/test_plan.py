import json

import pytest

from vbdrop.compression.planning.plan import ForwardProgram, Merge, Plan, WeightLayout

PLAN = Plan(
    keep={"conv.weight": {0: [0, 2], 1: [1]}, "conv.bias": {0: [0, 2]}},
    add={"conv.bias": [0.5, -1e-300], "other.bias": [1.0]},
    merge={"conv.weight": [Merge(1, 1, [0], [0.25], (0, 3))]},
    attributes={"conv": {"out_channels": 2}},
    shapes={"conv.weight": [3, 2, 5, 5], "conv.bias": [3]},
    layouts={"conv.weight": WeightLayout(1, False)},
    positions={"conv.weight": 576},
    program=ForwardProgram([{"name": "x", "op": "placeholder", "target": "x", "args": [], "kwargs": {}}], {}, ["gone"]),
    channels_last=True,
)


def test_a_plan_survives_json():
    assert Plan.from_json(PLAN.to_json()) == PLAN
    assert Plan.from_json(Plan().to_json()) == Plan()


def test_shapes_afterwards():
    assert PLAN.shape_after("conv.weight") == [2, 1, 5, 5]
    assert Plan(shapes={"a": [4]}).shape_after("a") == [4]


def test_the_units_of_grouped_and_transposed_weights():
    grouped = Plan(
        keep={"w": {0: [0, 1, 4, 5], 1: [1]}}, shapes={"w": [6, 2, 1, 1]}, layouts={"w": WeightLayout(3, False)}
    )  # three groups of two outputs and two inputs; the second group is gone
    assert grouped.kept_outputs("w") == [0, 1, 4, 5]
    assert grouped.kept_inputs("w") == [1, 5]
    transposed = Plan(keep={"w": {0: [2, 3], 1: [0]}}, shapes={"w": [4, 3, 1, 1]}, layouts={"w": WeightLayout(2, True)})
    assert transposed.kept_inputs("w") == [2, 3]
    assert transposed.kept_outputs("w") == [3]
    assert Plan(shapes={"w": [4, 3]}).kept_inputs("w") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 1"),
        ({"keep": []}, "keep must be an object"),
        ({"keep": {"conv.bias": {"0": [0, 3]}}}, "does not have"),
        ({"keep": {"conv.bias": {"0": [2, 0]}}}, "does not have"),
        ({"keep": {"conv.bias": {"0": []}}}, "does not have"),
        ({"keep": {"conv.bias": {"1": [0]}}}, "does not have"),
        ({"keep": {"conv.bias": {"2": [0]}}}, "does not have"),
        ({"keep": {"conv.bias": {"-1": [0]}}}, "must be numbers"),
        ({"keep": {"conv.bias": {"0": [-1]}}}, "whole numbers"),
        ({"keep": {"conv.bias": {"0": [True]}}}, "whole numbers"),
        ({"keep": {"nothing": {"0": [0]}}}, "no shape for 'nothing'"),
        ({"add": {"conv.bias": [1.0]}}, "adds 1 values"),
        ({"add": {"conv.bias": [1.0, float("nan")]}}, "finite"),
        ({"merge": {"conv.weight": [{"axis": 1, "into": 2, "source": [0], "scale": [1], "rows": [0, 3]}]}}, "merges"),
        ({"merge": {"conv.weight": [{"axis": 1, "into": 1, "source": [0], "scale": [], "rows": [0, 3]}]}}, "merges"),
        ({"merge": {"conv.weight": [{"axis": 1, "into": 1, "source": [0], "scale": [1], "rows": [0]}]}}, "two `rows`"),
        ({"attributes": {"conv": {"out_channels": 1.5}}}, "whole numbers"),
        ({"shapes": None}, "shapes must be an object"),
        ({"layouts": {"conv.weight": [0, True]}}, "layout"),
        ({"program": {"nodes": [3], "buffers": {}, "removed": []}}, "a node of the program"),
        ({"program": {"nodes": [], "buffers": {}, "removed": [1]}}, "removed"),
        ({"channels_last": 1}, "'channels_last' must be true or false in a plan; got 1"),
    ],
)
def test_what_is_no_plan_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Plan.from_json(json.dumps(PLAN.to_data() | change))


@pytest.mark.parametrize("text", ["", "[1", "3", "null", "[" * 100_000])
def test_text_that_is_no_plan_is_refused(text):
    with pytest.raises(ValueError, match="a plan"):
        Plan.from_json(text)
