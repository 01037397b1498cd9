"""What a section of the page is made of: figures, tables and notes, in the order in which they are read."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from vbdrop.report.reading import Run


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        svg: The picture.
        caption: What to see in it.
        heading: Whose it is, where several runs stand side by side.
        wide: Whether it needs the whole width.
    """

    kind: ClassVar[str] = "figure"
    svg: str
    caption: str
    heading: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        caption: What it shows.
        header: The names of its columns.
        rows: Its rows; the first cell of each is its name.
        heading: Whose it is.
        wide: Whether it needs the whole width.
        strong: The rows that stand out.
    """

    kind: ClassVar[str] = "grid"
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    heading: str = ""
    wide: bool = True
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Note:
    """A sentence, and commands that may follow from it.

    Attributes:
        text: The sentence.
        commands: The commands.
        heading: Whose it is.
        wide: Whether it needs the whole width.
    """

    kind: ClassVar[str] = "note"
    text: str
    commands: tuple[str, ...] = ()
    heading: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Slider:
    """The curve of error against size, with a slider for the threshold.

    Attributes:
        svg: The curve, with a marker.
        caption: What to see in it.
        points: What the slider shows at each position, and where the marker is then.
        start: The position of the threshold that the run was trained with.
        heading: Whose it is.
        wide: Whether it needs the whole width.
    """

    kind: ClassVar[str] = "slider"
    svg: str
    caption: str
    points: list[dict[str, Any]]
    start: int
    heading: str = ""
    wide: bool = False


Block: TypeAlias = Figure | Grid | Note | Slider


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        key: Its anchor.
        title: Its heading.
        draw: Makes its blocks from the runs and their labels.
    """

    key: str
    title: str
    draw: Callable[[Sequence[Run], Sequence[str]], list[Block]]
