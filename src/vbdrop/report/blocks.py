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
    """The curve of error against size, with a slider along it.

    Attributes:
        svg: The curve, with a marker.
        caption: What it shows.
        points: What the slider shows at each position, and where the marker goes.
        start: The position at the start.
        heading: The run it belongs to.
        wide: Whether it needs the full width.
        label: What the slider chooses; each point has its value under ``threshold``.
        shown: What else is shown of each point: the key, and the word that follows its value. Screen readers are also
            given ``error`` and ``weights``.
    """

    kind: ClassVar[str] = "slider"
    svg: str
    caption: str
    points: list[dict[str, Any]]
    start: int
    heading: str = ""
    wide: bool = False
    label: str = "Threshold on log alpha"
    shown: tuple[tuple[str, str], ...] = (
        ("error", "error"), ("weights", "weights"), ("fewer", "fewer"), ("bytes", "stored"),
    )  # fmt: skip


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
