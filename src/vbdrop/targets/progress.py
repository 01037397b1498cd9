"""One line that says where a run is: size against path, error, pressure, time left."""

import sys
import time
from collections.abc import Callable
from typing import TextIO

from vbdrop.targets.shrink_result import CurvePoint
from vbdrop.targets.sizes import in_words

Progress = Callable[[CurvePoint, int], None]
"""Called after every epoch with its point and the total number of epochs."""


class ProgressLine:
    """Writes one line per epoch; on a terminal, each replaces the last.

    Args:
        unit: The target's unit.
        file: Where to write; the standard error by default.

    Example:
        >>> line = ProgressLine("macs", sys.stdout)
        >>> line(CurvePoint(1, "press", 5000.0, 5100.0, 0.2, 3.5, 0.1), 1)
        epoch 1/1  press   5,000 macs (path 5,100 macs)  error 3.5  KL weight 0.1  0 s left
    """

    def __init__(self, unit: str, file: TextIO | None = None) -> None:
        self._unit, self._file = unit, file or sys.stderr
        self._start, self._first = time.monotonic(), 0

    def __call__(self, point: CurvePoint, epochs: int) -> None:
        """Write the line of an epoch."""
        if not self._first:
            self._first = point.epoch - 1
        done = point.epoch - self._first
        left = (time.monotonic() - self._start) / max(1, done) * (epochs - point.epoch)
        error = "" if point.error is None else f"  error {point.error:.3g}"
        text = (
            f"epoch {point.epoch}/{epochs}  {point.stage:<6}  {in_words(point.size, self._unit)} "
            f"(path {in_words(point.path, self._unit)})"
            f"{error}  KL weight {point.kl_weight:.3g}  {left:.0f} s left"
        )
        on_terminal = self._file.isatty()
        end = "\n" if not on_terminal or point.epoch == epochs else ""
        print(f"\r\x1b[K{text}" if on_terminal else text, end=end, file=self._file, flush=True)
