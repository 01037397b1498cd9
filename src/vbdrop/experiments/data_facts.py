"""What a table needs to know about its data before anything is run."""

from pathlib import Path

from vbdrop.experiments.inputs import facts
from vbdrop.experiments.protocol import Protocol


def checksums(protocol: Protocol, data_dir: Path | None = None) -> dict[str, str]:
    """Return the checksum of each data set of a table, including those on which its settings are screened.

    Raises:
        DataError: A data set is missing or damaged.

    Example:
        >>> from vbdrop.experiments.paper_tables import protocol_of
        >>> list(checksums(protocol_of(1, quick=True)))
        ['digits']
    """
    screens = (column.screened_on for column in protocol.columns)
    names = dict.fromkeys(column.data for column in (*protocol.columns, *screens) if column is not None)
    return {name: facts(name, data_dir).checksum for name in names}
