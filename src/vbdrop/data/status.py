"""Which data sets are on this computer, and where."""

from dataclasses import dataclass
from pathlib import Path

from vbdrop.data.errors import DataError
from vbdrop.data.folders import find, search_path
from vbdrop.data.sources import load_spec
from vbdrop.data.table import DATASETS


@dataclass(frozen=True)
class Status:
    """The state of a data set on this computer.

    Attributes:
        name: Its key in the table.
        title: The name as its authors write it.
        summary: What it is, in one line.
        folder: Where its files are; None if there are none, or if they come with the package.
        here: Whether it can be loaded without fetching anything.
        problem: What a check found wrong; None if nothing, or if it was not checked.
    """

    name: str
    title: str
    summary: str
    folder: Path | None
    here: bool
    problem: str | None = None


def status(data_dir: str | Path | None = None, *, check: bool = False) -> list[Status]:
    """Return the state of each data set of the table.

    Args:
        data_dir: The folder to look in; by default those of :func:`vbdrop.data.load`.
        check: Also decode the files and compare their checksums, which takes a few seconds.

    Raises:
        DataError: ``data_dir`` is not a folder.

    Example:
        >>> digits = status()[0]
        >>> digits.name, digits.here, digits.folder
        ('digits', True, None)
    """
    root = None if data_dir is None else Path(data_dir).expanduser()
    rows = []
    for name, spec in DATASETS.items():
        found = find(spec, search_path(root))
        here = found is not None or spec.embedded is not None
        problem = _problem(name, root) if check and here else None
        rows.append(Status(name, spec.title, spec.summary, found[0] if found else None, here, problem))
    return rows


def _problem(name: str, root: Path | None) -> str | None:
    try:
        load_spec(name, DATASETS[name], root)
    except DataError as error:
        return str(error)
    return None
