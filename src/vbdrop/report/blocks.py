"""The parts of a section of the page: figures, tables and notes, in reading order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from vbdrop.report.reading import Run


@dataclass(frozen=True)
class Figure:
    """A picture.

    Attributes:
        svg: The picture.
        caption: What it shows.
        heading: The run it belongs to, if there are several side by side.
        wide: Whether it needs the full width.
    """

    kind: ClassVar[str] = "figure"
    svg: str
    caption: str
    heading: str = ""
    wide: bool = False


@dataclass(frozen=True)
class TableBlock:
    """A table.

    Attributes:
        caption: What it shows.
        header: The names of its columns.
        rows: Its rows; the first cell of each is its name.
        heading: The run it belongs to.
        wide: Whether it needs the full width.
        strong: The rows to highlight.
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
    """A sentence, optionally followed by commands.

    Attributes:
        text: The sentence.
        commands: The commands.
        heading: The run it belongs to.
        wide: Whether it needs the full width.
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
        caption: What it shows.
        points: What the slider shows at each position, and where the marker goes.
        start: The position of the threshold that the run was trained with.
        heading: The run it belongs to.
        wide: Whether it needs the full width.
    """

    kind: ClassVar[str] = "slider"
    svg: str
    caption: str
    points: list[dict[str, Any]]
    start: int
    heading: str = ""
    wide: bool = False


Block: TypeAlias = Figure | TableBlock | Note | Slider


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
