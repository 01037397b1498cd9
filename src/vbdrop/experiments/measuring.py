"""Bytes and latency of a run's small network, written beside its record: they depend on the machine."""

from collections.abc import Mapping
from typing import Any

from vbdrop.compression import Compressed
from vbdrop.experiments.environment import now, processor
from vbdrop.experiments.records import MEASURED, Record
from vbdrop.exporting.measure import Measurement
from vbdrop.train.files import write_json


def write_measured(
    record: Record,
    small: Compressed,
    error: float,
    measurement: Measurement,
    missing: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Write ``measured.json`` in the folder of a run.

    Args:
        record: The run.
        small: Its compressed network.
        error: The error of the small network, in percent.
        measurement: The bytes and the latency of both.
        missing: What could not be measured -> why.

    Returns:
        The contents of the file.
    """
    content = {
        "run": record.config.id,
        "made": now(),
        "processor": processor(),
        "threads": 1,
        "error": error,
        "layers": [
            {
                "name": layer.name,
                "shape": list(layer.shape),
                "small_shape": None if layer.small_shape is None else list(layer.small_shape),
                "weights": layer.before.weights,
                "small_weights": layer.after.weights,
                "nonzero": layer.after.nonzeros,
            }
            for layer in small.summary().layers
        ],
        "rows": [
            {
                "name": name,
                "bytes": row.bytes,
                "microseconds": {str(batch): 1e6 * row.latency(batch) for batch in row.seconds},
                "faster": {str(batch): measurement.faster(name, batch) for batch in row.seconds},
            }
            for name, row in measurement.rows.items()
        ],
        "missing": dict(missing or {}),
    }
    write_json(record.folder / MEASURED, content)
    return content
