"""Reads and writes the files of a run; errors name the file."""

import json
from pathlib import Path
from typing import Any

from vbdrop.files import write_atomically


class RecordError(Exception):
    """A file of a run is missing, damaged, or belongs to another run.

    Example:
        >>> raise RecordError("result.json is damaged")
        Traceback (most recent call last):
        vbdrop.train.files.RecordError: result.json is damaged
    """


def write_json(path: Path, value: Any) -> None:  # noqa: ANN401 -- whatever JSON can hold
    """Write a value as readable JSON, atomically; a NaN or an infinity is an error, since JSON has none.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "result.json"
        >>> write_json(path, {"error": 1.7})
        >>> read_json(path)
        {'error': 1.7}
    """
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:  # noqa: ANN401 -- whatever JSON can hold
    """Read a JSON file.

    Raises:
        RecordError: It is missing, or is not JSON.

    Example:
        >>> read_json(Path("no/such.json"))
        Traceback (most recent call last):
        vbdrop.train.files.RecordError: cannot read no/such.json: No such file or directory
    """
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise RecordError(f"{path} is damaged: {error}") from error
