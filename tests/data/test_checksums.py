import dataclasses
import hashlib

import numpy as np
import pytest

from vbdrop.data import DataError
from vbdrop.data.checksums import Checksums, of_bytes, of_channels_last, verify


def expected(arrays, digest=of_bytes) -> Checksums:
    return Checksums({name: digest(array) for name, array in arrays._asdict().items()}, digest=digest)


def test_the_published_arrays_pass_and_have_one_sum(tmp_path, colour_arrays):
    checksum = verify(colour_arrays, expected(colour_arrays), tmp_path)
    assert len(checksum) == 64
    assert checksum == verify(colour_arrays, Checksums(), tmp_path)


@pytest.mark.parametrize("name", ["train_images", "train_labels", "test_images", "test_labels"])
def test_one_other_byte_is_noticed_and_changes_the_sum(tmp_path, colour_arrays, name):
    array = getattr(colour_arrays, name).copy()
    array.flat[-1] ^= 1
    other = colour_arrays._replace(**{name: array})
    with pytest.raises(DataError, match=f"the {name.replace('_', ' ')} in .* sha256 must be {'[0-9a-f]' * 64}; got"):
        verify(other, expected(colour_arrays), tmp_path)
    assert verify(other, Checksums(), tmp_path) != verify(colour_arrays, Checksums(), tmp_path)


def test_the_order_of_the_bytes_is_that_of_the_axes(colour_arrays):
    images = colour_arrays.test_images
    assert of_bytes(images) == hashlib.sha256(images.tobytes()).hexdigest()
    assert of_bytes(np.asfortranarray(images)) == of_bytes(images)
    last = np.moveaxis(images, 1, -1)
    assert of_channels_last(images) == hashlib.sha256(last.tobytes()).hexdigest() != of_bytes(images)


def test_another_edition_passes_by_its_files_if_all_of_them_are_right(tmp_path, colour_arrays):
    (tmp_path / "a").write_bytes(b"first")
    (tmp_path / "b").write_bytes(b"second")
    files = {"a": hashlib.sha256(b"first").hexdigest(), "b": hashlib.sha256(b"second").hexdigest()}
    other = dataclasses.replace(expected(colour_arrays), arrays={"test_labels": "0" * 64}, files=files)
    verify(colour_arrays, other, tmp_path)
    (tmp_path / "b").write_bytes(b"else")
    with pytest.raises(DataError, match="the test labels"):
        verify(colour_arrays, other, tmp_path)
