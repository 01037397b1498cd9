"""The page of one run of `vbdrop.shrink`: its walk from the whole network to the target."""

from collections.abc import Mapping
from typing import Any

from vbdrop.report.blocks import Block, Figure, Note, Slider, TableBlock
from vbdrop.report.drawing import DASHES, SERIES, Canvas, legend, log_ticks, style
from vbdrop.report.template import fill
from vbdrop.report.wording import times

UNITS = {"weights": "weights", "parameters": "parameters", "bytes": "bytes", "macs": "MACs", "latency": "ms"}
"""The unit of a target -> how it is written."""


def render_walk(result: Mapping[str, Any]) -> str:
    """Make the page of a run: size and error over time, sizes to choose from, the pressure, the cut, and the layers.

    Args:
        result: The figures of the run, as in its ``result.json``.

    Returns:
        Self-contained HTML: it needs no network and no other file.
    """
    with style():
        sections = [
            ({"key": "walk", "title": "Size and error over time"}, _over_time(result)),
            ({"key": "sizes", "title": "Choose a size"}, [_chooser(result)]),
            ({"key": "pressure", "title": "The pressure that was found"}, [_pressure(result)]),
            ({"key": "cut", "title": "What the cut cost"}, [_cut(result)]),
            ({"key": "layers", "title": "Which layers paid"}, [_layers(result)]),
        ]
    return fill(
        "report.html",
        title=f"{result['target']}: {_ratio(result)}",
        heads=[{"name": "result", "figures": _head(result)}],
        sections=sections,
        many=False,
    )


def _ratio(result: Mapping[str, Any]) -> str:
    if not result["size"]:
        return times(None)
    return f"{times(result['times'])} {'faster' if result['unit'] == 'latency' else 'fewer'}"


def _head(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    unit = UNITS[result["unit"]]
    limit = "" if result["limit"] is None else f", at most {_said(result, result['limit'])} allowed"
    figures = [(unit, _said(result, result["size"]), f"{_said(result, result['before'])} before{limit}")]
    if result["error"] is not None:
        figures.append(("validation error", f"{result['error']:.4g}", f"{_error(result['error_before'])} before"))
    return figures


def _shown(result: Mapping[str, Any], size: float) -> float:
    return 1e3 * size if result["unit"] == "latency" else size


def _said(result: Mapping[str, Any], size: float) -> str:
    unit, shown = UNITS[result["unit"]], _shown(result, size)
    return f"{shown:.3g} {unit}" if result["unit"] == "latency" else f"{shown:,.0f} {unit}"


def _error(error: float | None) -> str:
    return "not measured" if error is None else f"{error:.4g}"


def _over_time(result: Mapping[str, Any]) -> list[Block]:
    curve = result["curve"]
    epochs = [point["epoch"] for point in curve]
    canvas = Canvas(3.0)
    axes = canvas.axes[0]
    sizes, path = ([max(_shown(result, point[name]), 1e-9) for point in curve] for name in ("size", "path"))
    axes.plot(epochs, path, color=SERIES[1], linestyle=DASHES[1], label="path")
    axes.plot(epochs, sizes, ".-", color=SERIES[0], label="size")
    axes.set_yscale("log")
    log_ticks(axes, [*sizes, *path], "y")
    axes.set_xlabel("epoch")
    axes.set_ylabel(UNITS[result["unit"]])
    legend(axes, 2)
    said = f"from {_said(result, result['before'])} to {_said(result, result['size'])}"
    blocks: list[Block] = [
        Figure(
            canvas.svg(f"Line chart of the size per epoch, {said}."),
            f"The size of the network that compression would give after each epoch, {said}, and the path to follow.",
        )
    ]
    errors = [(point["epoch"], point["error"]) for point in curve if point["error"] is not None]
    if not errors:
        return [*blocks, Note("There was no validation data, so no error was measured.")]
    canvas = Canvas(3.0)
    canvas.axes[0].plot(*zip(*errors, strict=True), ".-", color=SERIES[0])
    canvas.axes[0].set_xlabel("epoch")
    canvas.axes[0].set_ylabel("validation error")
    said = f"from {errors[0][1]:.4g} in the first epoch to {errors[-1][1]:.4g} in the last"
    caption = f"The validation error of that network, {said}."
    return [*blocks, Figure(canvas.svg(f"Line chart of the error per epoch, {said}."), caption)]


def _chooser(result: Mapping[str, Any]) -> Block:
    """The models that were kept, each by its file: those on the way, and the result."""
    files = [*result.get("kept", []), {"file": "the result", **result}]
    if any(one["error"] is None or not one["size"] for one in files):  # a logarithmic scale has no place for 0
        rows = tuple(
            (_name(one), _said(result, one["size"]), times(one["times"] if one["size"] else None)) for one in files
        )
        return TableBlock("The models that were kept", ("file", "size", "smaller"), rows, wide=False)
    points = [(point["size"], point["error"]) for point in result["curve"] if point["error"] is not None]
    canvas = Canvas(3.0)
    axes = canvas.axes[0]
    walk = [(_shown(result, size), error) for size, error in points if size > 0]
    places = [(_shown(result, one["size"]), one["error"]) for one in files]
    if walk:
        axes.plot(*zip(*walk, strict=True), ".", color=SERIES[1], markersize=4, label="after each epoch")
    axes.plot(*zip(*places, strict=True), "o", color=SERIES[0], markersize=6, label="kept")
    axes.set_xscale("log")
    log_ticks(axes, [size for size, _ in (*walk, *places)], "x")
    axes.set_xlabel(UNITS[result["unit"]])
    axes.set_ylabel("validation error")
    legend(axes, 2)
    spots = canvas.places(axes, places)
    x, y = spots[-1]
    svg = canvas.svg(f"Error against size of {len(files)} models that were kept")
    return Slider(
        svg.replace("</svg>", f'<circle class="marker" cx="{x}" cy="{y}" r="5.5"/></svg>'),
        f"The models that were kept, in files beside this page for vbdrop.load. {_name(files[-1])} was refined; the "
        "larger ones are as they were on the way, and can be trained further.",
        [
            {
                "threshold": _name(one),
                "error": f"{one['error']:.4g}",
                "weights": _said(result, one["size"]),
                "fewer": times(one["times"]),
                "x": spot[0],
                "y": spot[1],
            }
            for one, spot in zip(files, spots, strict=True)
        ],
        len(files) - 1,
        label="File",
        shown=(("error", "error"), ("weights", ""), ("fewer", "smaller")),
    )


def _name(kept: Mapping[str, Any]) -> str:
    return kept.get("file") or f"epoch {kept['epoch']}"


def _pressure(result: Mapping[str, Any]) -> Block:
    walk = [point for point in result["walk"] if point["kl_weight"] > 0]
    if not walk:
        return Note("The run had no press stage, so no KL weight was looked for.")
    canvas = Canvas(2.6)
    axes = canvas.axes[0]
    weights = [point["kl_weight"] for point in walk]
    axes.plot([point["step"] for point in walk], weights, color=SERIES[0])
    axes.set_yscale("log")
    log_ticks(axes, weights, "y")
    axes.set_xlabel("step of the press stage")
    axes.set_ylabel("KL weight")
    said = f"from {weights[0]:.3g} to {weights[-1]:.3g}, at most {max(weights):.3g}"
    return Figure(
        canvas.svg(f"Line chart of the KL weight over the steps, {said}."),
        f"The KL weight that kept the network on its path: {said}.",
    )


def _cut(result: Mapping[str, Any]) -> Block:
    cut = result.get("cut")
    if cut is None:
        return Note("No cut was recorded.")
    sizes = f"{_said(result, cut['size_before'])} to {_said(result, cut['size'])}"
    rows = (
        ("size", sizes),
        ("removed", f"{cut['elements']:,} weights or gates"),
        ("evidence lost", f"{cut['nats']:.4g} nats, about {cut['nats_per_example']:.2g} per example"),
        ("error before the cut", _error(cut["error_before"])),
        ("error right after it", _error(cut["error"])),
        ("error at the end", _error(result["error"])),
    )
    return TableBlock(f"The cut to the exact size, at step {cut['step']:,}", ("", ""), rows, wide=False)


def _layers(result: Mapping[str, Any]) -> Block:
    field = {"macs": "macs", "bytes": "bytes", "latency": "macs"}.get(result["unit"], "nonzeros")
    name = {"macs": "MACs", "bytes": "bytes"}.get(field, "weights")
    rows = tuple(
        (
            layer["name"],
            _by(layer["shape"]),
            "gone" if layer["small_shape"] is None else _by(layer["small_shape"]),
            f"{layer['before'][field] or 0:,}",
            f"{layer['after'][field] or 0:,}",
            f"{100 * (1 - (layer['after'][field] or 0) / max(1, layer['before'][field] or 0)):.1f} %",
        )
        for layer in result["layers"]
    )
    header = ("layer", "shape", "now", name, "now", "removed")
    return TableBlock(f"The layers before and after, in {name}", header, rows)


def _by(shape: list[int]) -> str:
    return "×".join(map(str, shape))
