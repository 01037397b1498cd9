"""Pictures of what is left."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

from vbdrop.report.pictures import NEGATIVE, POSITIVE, pictures
from vbdrop.report.reading import ReportError


def picture(values, scale=None):
    array = np.asarray(values)
    kind = np.uint8 if scale is None else np.int8
    text = base64.b64encode(array.astype(kind).tobytes()).decode()
    return {"rows": array.shape[0], "columns": array.shape[1], "values": text, "scale": scale}


def images(svg):
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(text))).convert("RGBA"))
        for text in re.findall(r'base64,([^"]+)"', svg)
    ]


def test_what_a_first_layer_reads_its_units_and_all_masks(run):
    reads, units, masks = pictures([run("vbd")], ["a"])
    assert "What hidden.0 reads of the image" in reads.caption
    assert "units of hidden.0 with the largest weights (of 12)" in units.caption
    assert all(name in masks.svg for name in ("hidden.0", "hidden.1", "hidden.2", "output"))


def test_signs_have_colours_and_zero_is_transparent(run):
    vbd = run("vbd")
    layer = {"name": "conv1", "outputs": 9, "filters": [picture([[127, 0], [0, -127]], 0.1)]}
    vbd.details["first_layer"] = layer
    filters, _ = pictures([vbd], ["a"])
    assert "The 1 of 9 filters" in filters.caption
    (image,) = images(filters.svg)
    image = image if image[0, 0, 3] else image[::-1]  # a matter of how SVG is written
    assert tuple(image[0, 0]) == (*POSITIVE, 255)
    assert tuple(image[-1, -1]) == (*NEGATIVE, 255)
    assert image[0, -1, 3] == image[-1, 0, 3] == 0


def test_nothing_left_and_nothing_to_see(run):
    vbd = run("vbd")
    vbd.details["first_layer"]["units"] = []
    vbd.details["masks"] = []
    assert pictures([vbd], ["a"])[-1].text == "No unit of hidden.0 has a weight left."
    vbd.details["first_layer"] = None
    assert "does not read an image" in pictures([vbd], ["a"])[0].text


@pytest.mark.parametrize("values", ["%%%", "AAAA"])
def test_a_damaged_picture_is_an_error(run, values):
    vbd = run("vbd")
    vbd.details["masks"][0]["values"] = values
    with pytest.raises(ReportError, match=r"details\.json is damaged: a picture"):
        pictures([vbd], ["a"])
