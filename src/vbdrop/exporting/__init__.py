"""A model as a file for another runtime (ONNX, torch.export, C), checked against the model, and measured."""

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
