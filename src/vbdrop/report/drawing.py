"""The style of all figures, with colours that the page chooses, so that they suit light mode, dark mode and paper.

Figures are drawn with placeholder colours, which the SVG replaces by the page's CSS variables.
"""

import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from markupsafe import escape
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH = 5.2
"""Width of a figure, in inches. Text of 9 points is then legible on a phone, and not too large on a desktop."""

INK, MUTED, LINE, PAPER = "#0a0a01", "#0a0a02", "#0a0a03", "#0a0a04"
SERIES = ("#0b0b01", "#0b0b02", "#0b0b03", "#0b0b04", "#0b0b05", "#0b0b06")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (8, 3)))
"""Lines also differ in their dashes: not everyone can tell them apart by colour, and on paper nobody can."""

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    LINE: "var(--line)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{index})" for index, colour in enumerate(SERIES, start=1)},
}

_STYLE: dict[Any, Any] = {
    "figure.dpi": 72,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": LINE,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
}


@contextmanager
def style() -> Iterator[None]:
    """Draw everything inside this context in the style of the page; the settings of the process are restored.

    Example:
        >>> with style():
        ...     mpl.rcParams["svg.fonttype"]
        'none'
    """
    with mpl.rc_context(_STYLE):
        yield


class Canvas:
    """A figure that is being drawn, inside `style`.

    Args:
        height: In inches.
        rows: Rows of axes.
        columns: Columns of axes.
        **others: Passed to `matplotlib.figure.Figure.subplots`.

    Example:
        >>> with style():
        ...     canvas = Canvas(2)
        ...     _ = canvas.axes[0].plot([1, 2], [3, 4], color=SERIES[0])
        ...     "var(--series-1)" in canvas.svg("a line")
        True
    """

    def __init__(self, height: float, rows: int = 1, columns: int = 1, **others: Any) -> None:  # noqa: ANN401
        self.figure = Figure(figsize=(WIDTH, height), layout="constrained")
        made = self.figure.subplots(rows, columns, squeeze=False, **others)
        self.axes: list[Axes] = list(made.flat)

    def places(self, axes: Axes, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
        """Return the positions of data points in the SVG; call it when the figure is complete."""
        self.figure.draw_without_rendering()
        height = self.figure.bbox.height
        return [(round(float(x), 2), round(float(height - up), 2)) for x, up in axes.transData.transform(points)]

    def svg(self, label: str) -> str:
        """Return the figure as an SVG element.

        Args:
            label: What it shows, for screen readers.
        """
        buffer = io.StringIO()
        with mpl.rc_context({"svg.hashsalt": label}):
            self.figure.savefig(
                buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
            )
        return _for_page(buffer.getvalue(), label)


def _for_page(text: str, label: str) -> str:
    """Turn an SVG file into an element of a page: no prolog, unique ids, the page's colours and font, and a label."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"<style[^>]*>\*\{[^<]*\}</style>", "", text)
    prefix = f"f{zlib.crc32((label + text).encode()):x}-"  # two figures of a page never share an id
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "", text)
    text = re.sub(r'(url\(#|href="#)([^)"]+)', rf"\1{prefix}\2", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r"font-family: [^;\"]*;? ?|font: (\d+(?:\.\d+)?px) [^;\"]*", _font, text)
    opening = re.match(r"<svg[^>]*>", text)
    if opening is None:
        raise ValueError("`text` must be an SVG document.")
    box = re.search(r'viewBox="([^"]+)"', opening[0])
    view = box[1] if box else f"0 0 {WIDTH * 72} {WIDTH * 72}"
    return f'<svg viewBox="{view}" role="img" aria-label="{escape(label)}">' + text[opening.end() :].strip()


def _font(found: re.Match[str]) -> str:
    return f"font-size: {found[1]}" if found[1] else ""


def legend(axes: Axes, count: int) -> None:
    """Put the legend above the axes, where it hides nothing.

    Args:
        axes: The axes.
        count: The number of its entries.
    """
    if count > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=min(count, 2), borderaxespad=0.2, handlelength=2.4)


def log_ticks(axes: Axes, values: Sequence[float], which: str) -> None:
    """Label a logarithmic axis with plain numbers.

    Args:
        axes: The axes.
        values: All values that are shown.
        which: ``"x"`` or ``"y"``.
    """
    axis = axes.xaxis if which == "x" else axes.yaxis
    narrow = max(values) < 30 * min(values)
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5) if narrow else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())
