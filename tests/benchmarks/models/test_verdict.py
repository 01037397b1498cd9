import pytest
from benchmarks.models.verdict import is_wrong, line, shortcomings

GOOD = {
    **{"entry": "timm/net", "finite": True, "owned": 0.95, "gone": 0.9, "difference": 1e-6, "seconds": 1.0},
    **{"loaded_difference": 1e-6, "parameters": 100, "parameters_after": 50, "latency": 0.5},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"owned": 0.79}, "groups own 79 % of the weights"),
        ({"gone": 0.5}, "50 % of what dead groups own is gone"),
        ({"finite": False}, "its gradients are not finite"),
        ({"difference": 1e-3}, "WRONG: its outputs differ by 1e-03"),
        ({"difference": float("nan")}, "WRONG: its outputs differ by nan"),
        ({"loaded_difference": 0.5}, "WRONG: its outputs differ by 5e-01"),
        ({"rounded_difference": 0.5}, "WRONG: its outputs differ by 5e-01"),
        ({"errors": {"compress": "ValueError: no"}}, "compress: ValueError: no"),
        ({"errors": {"onnx": "no such operator"}}, None),
    ],
)
def test_what_an_entry_lacks_is_said(change, said):
    row = GOOD | change
    assert shortcomings(row) == ([said] if said else [])
    assert is_wrong(row) == bool(said and "WRONG" in said)
    assert (said or "ok") in line(row)


def test_an_entry_that_was_stopped_has_a_line():
    assert "took longer" in line({"entry": "timm/net", "errors": {"process": "took longer than 1 s"}})
