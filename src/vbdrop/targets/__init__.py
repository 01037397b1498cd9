"""Targets: how small a model has to become, and how it gets there."""

from vbdrop.targets.kept_models import KeptModel
from vbdrop.targets.pursuit import CutCost, Pursuit, WalkPoint
from vbdrop.targets.shrink import shrink
from vbdrop.targets.shrink_result import CurvePoint, ShrinkResult
from vbdrop.targets.target import Target

__all__ = ["CurvePoint", "CutCost", "KeptModel", "Pursuit", "ShrinkResult", "Target", "WalkPoint", "shrink"]
