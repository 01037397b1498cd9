"""Exact removal of what a trained network does not need, the plan of it, and its counts."""

from vbdrop.compress.apply import apply
from vbdrop.compress.compress import Compressed, compress
from vbdrop.compress.format import FileFormatError
from vbdrop.compress.pack import load
from vbdrop.compress.plan import Plan
from vbdrop.compress.summary import Summary
from vbdrop.compress.sweep import SweepPoint, sweep

__all__ = ["Compressed", "FileFormatError", "Plan", "Summary", "SweepPoint", "apply", "compress", "load", "sweep"]
