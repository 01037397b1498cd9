"""Exact removal of what a trained network does not need, the plan of it, and its counts."""

from vbdrop.compress.apply import apply
from vbdrop.compress.compress import Compressed, compress
from vbdrop.compress.plan import Plan
from vbdrop.compress.summary import Summary
from vbdrop.compress.sweep import SweepPoint, sweep

__all__ = ["Compressed", "Plan", "Summary", "SweepPoint", "apply", "compress", "sweep"]
