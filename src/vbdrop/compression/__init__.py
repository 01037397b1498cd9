"""Exact removal of what a trained network does not need: the plan, the small model, and the counts."""

from vbdrop.compression.compress import Compressed, compress
from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.model_file import load
from vbdrop.compression.planning.plan import Plan
from vbdrop.compression.rewriting.apply_plan import apply_plan_
from vbdrop.compression.summary import Summary
from vbdrop.compression.sweep import SweepPoint, sweep

__all__ = ["Compressed", "FileFormatError", "Plan", "Summary", "SweepPoint", "apply_plan_", "compress", "load", "sweep"]
