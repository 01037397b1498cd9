"""Pictures of the remaining weights: what the first layer reads of an image, its units or filters, and all masks."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from vbdrop.report.blocks import Block, Figure, Note
from vbdrop.report.drawing import Canvas
from vbdrop.report.per_run import from_details
from vbdrop.report.reading import ReportError, Run
from vbdrop.report.wording import short, thousands

POSITIVE, NEGATIVE, THERE = (0x2F, 0x7F, 0xD1), (0xE0, 0x6C, 0x1F), (0x6F, 0x8F, 0xB5)
"""Colours that are visible on white and on black; zero is transparent."""


def pictures(runs: Sequence[Run], labels: Sequence[str]) -> list[Block]:
    """Draw the remaining weights of each network."""
    without = "This record does not have the pictures (there is no details.json). To make them:"
    return from_details(runs, labels, _drawn, lambda _: without)


def _drawn(_: Run, details: Mapping[str, Any], heading: str) -> list[Block]:
    return [*_first_layer(details["first_layer"], heading), *_masks(details["masks"], heading)]


def _first_layer(layer: dict[str, Any] | None, heading: str) -> list[Block]:
    if layer is None:
        return [Note("The first layer does not read an image, so there is no picture of it.", heading=heading)]
    if layer.get("filters") is not None:
        shown = layer["filters"]
        caption = (
            f"The {len(shown)} of {layer['outputs']} filters of {layer['name']} that are not empty, summed over input "
            "channels. Blue: positive weights; orange: negative; blank: zero."
        )
        return [_weights(shown, f"The filters of the first layer, {layer['name']}", caption, heading)]
    blocks: list[Block] = []
    if layer.get("reads") is not None:
        canvas = Canvas(3.75)
        _show(canvas.axes[0], _share(layer["reads"]))
        caption = (
            f"What {layer['name']} reads of the image: the stronger the pixel, the larger the weights on it over all "
            "units. A blank pixel is no longer read by any unit."
        )
        unread = int((_bytes(layer["reads"], np.uint8) == 0).sum())
        label = f"How strongly each pixel is read by the first layer; {unread} pixels are not read at all"
        blocks.append(Figure(canvas.svg(label), caption, heading))
    shown = layer.get("units") or []
    if shown:
        caption = (
            f"The {len(shown)} units of {layer['name']} with the largest weights (of {layer['outputs']}), each laid "
            "out as an image. Blue: positive weights; orange: negative; blank: zero."
        )
        blocks.append(_weights(shown, f"Units of the first layer, {layer['name']}", caption, heading))
    else:
        blocks.append(Note(f"No unit of {layer['name']} has a weight left.", heading=heading))
    return blocks


def _weights(shown: Sequence[dict[str, Any]], label: str, caption: str, heading: str) -> Block:
    if not shown:
        return Note(f"{label}: none is left.", heading=heading)
    columns = 4 if len(shown) <= 12 else 8
    rows = ceil(len(shown) / columns)
    canvas = Canvas(rows * 5.0 / columns, rows, columns)
    for axes in canvas.axes:
        _bare(axes)
    for axes, picture in zip(canvas.axes, shown, strict=False):
        _show(axes, _signed(picture))
    return Figure(canvas.svg(label), caption, heading)


def _masks(masks: Sequence[dict[str, Any]], heading: str) -> list[Block]:
    if not masks:
        return []
    columns = min(len(masks), 3)
    rows = ceil(len(masks) / columns)
    canvas = Canvas(rows * (0.35 + 5.0 / columns), rows, columns)
    for axes in canvas.axes:
        _bare(axes)
    for axes, mask in zip(canvas.axes, masks, strict=False):
        share = _share(mask)
        axes.imshow(share, aspect="auto", interpolation="none")
        axes.set_box_aspect(1)
        axes.set_title(f"{short(mask['name'])}\n{mask['outputs']} × {thousands(mask['inputs'])}", fontsize=8)
    caption = (
        "Where the remaining weights are: outputs down, inputs across. Large layers are drawn in blocks, stronger "
        "where more of a block remains. An empty row is a unit without inputs, an empty column an input that is not "
        "read."
    )
    names = ", ".join(mask["name"] for mask in masks)
    return [Figure(canvas.svg(f"The masks of the layers {names}"), caption, heading)]


def _show(axes: Axes, image: NDArray[np.uint8]) -> None:
    _bare(axes)
    axes.imshow(image, interpolation="none")
    for spine in axes.spines.values():
        spine.set_visible(True)


def _bare(axes: Axes) -> None:
    axes.grid(False)
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _bytes(picture: dict[str, Any], kind: type[np.uint8] | type[np.int8]) -> NDArray[Any]:
    rows, columns = picture["rows"], picture["columns"]
    try:
        values = np.frombuffer(base64.b64decode(picture["values"], validate=True), kind)
    except (binascii.Error, ValueError) as error:
        raise ReportError(f"details.json is damaged: a picture in it is not base64: {error}") from error
    if len(values) != rows * columns or not len(values):
        raise ReportError(f"details.json is damaged: a picture of {rows} x {columns} has {len(values)} values")
    return values.reshape(rows, columns)


def _share(picture: dict[str, Any]) -> NDArray[np.uint8]:
    """Draw shares in one colour, stronger for larger ones; the square root keeps small ones visible."""
    values = _bytes(picture, np.uint8) / 255
    return _coloured(np.sqrt(values / max(values.max(), 1e-9)), np.full(values.shape, 1), THERE, THERE)


def _signed(picture: dict[str, Any]) -> NDArray[np.uint8]:
    values = _bytes(picture, np.int8) / 127
    return _coloured(np.sqrt(np.abs(values)), np.sign(values), POSITIVE, NEGATIVE)


def _coloured(
    strength: NDArray[Any], sign: NDArray[Any], positive: tuple[int, ...], negative: tuple[int, ...]
) -> NDArray[np.uint8]:
    image = np.zeros((*strength.shape, 4), np.uint8)
    image[..., :3] = np.where(sign[..., None] >= 0, positive, negative)
    image[..., 3] = np.clip(255 * strength, 0, 255)
    return image
