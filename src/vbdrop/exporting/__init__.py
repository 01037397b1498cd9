"""Exports a model for another runtime (ONNX, torch.export, C), checks the file against the model, and measures it."""

from vbdrop.exporting.errors import ExportError
from vbdrop.exporting.exporting import Exported, export
from vbdrop.exporting.measure import Measured, Measurement, measure
from vbdrop.exporting.table import FORMATS, Format

__all__ = [
    "FORMATS",
    "ExportError",
    "Exported",
    "Format",
    "Measured",
    "Measurement",
    "export",
    "measure",
]
