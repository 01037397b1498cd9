"""A model as a file for another runtime (ONNX, torch.export, C), checked against the model, and measured."""

from vbdrop.export.errors import ExportError
from vbdrop.export.exporting import Exported, export
from vbdrop.export.measure import Measured, Measurement, measure
from vbdrop.export.table import FORMATS, Format

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
