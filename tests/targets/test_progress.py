"""The line that says where a run is."""

import io

from vbdrop.targets.progress import ProgressLine
from vbdrop.targets.shrink_result import CurvePoint


class Terminal(io.StringIO):
    def isatty(self):
        return True


def point(epoch, error=2.5):
    return CurvePoint(epoch, "press", 12345.0, 12000.0, 0.1, error, 0.25)


def test_it_has_size_path_error_and_pressure():
    file = io.StringIO()
    line = ProgressLine("weights", file)
    line(point(1), 2)
    line(point(2, None), 2)
    first, second = file.getvalue().splitlines()
    assert "epoch 1/2  press   12,345 weights (path 12,000 weights)  error 2.5  KL weight 0.25" in first
    assert "error" not in second
    assert second.endswith("0 s left")


def test_on_a_terminal_it_is_one_line():
    file = Terminal()
    line = ProgressLine("weights", file)
    for epoch in (1, 2, 3):
        line(point(epoch), 3)
    assert file.getvalue().count("\n") == 1
    assert file.getvalue().count("\r") == 3
