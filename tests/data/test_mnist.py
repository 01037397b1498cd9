import gzip
import hashlib
import struct

import numpy as np
import pytest

from vbdrop.data import DataError
from vbdrop.data.mnist import FILES, idx_digest, idx_header, read, read_idx

IMAGES, LABELS = FILES[:2]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_four_files_are_read(tmp_path, mnist_arrays, write_mnist, suffix):
    write_mnist(tmp_path, suffix)
    for found, wanted in zip(read(tmp_path), mnist_arrays, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_plain_and_gzipped_files_may_be_mixed(tmp_path, mnist_arrays, write_mnist):
    write_mnist(tmp_path, ".gz")
    labels = tmp_path / f"{LABELS}.gz"
    (tmp_path / LABELS).write_bytes(gzip.decompress(labels.read_bytes()))
    labels.unlink()
    np.testing.assert_array_equal(read(tmp_path).train_labels, mnist_arrays.train_labels)


def test_the_digest_is_that_of_the_unpacked_file(tmp_path, mnist_arrays, write_mnist):
    write_mnist(tmp_path)
    for name, array in zip(FILES, mnist_arrays, strict=True):
        assert idx_digest(array) == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def damage(content: bytes, kind: str) -> bytes:
    return {
        "empty": b"",
        "another kind of file": b"<!DOCTYPE html>" + content,
        "floats": content[:2] + b"\x0d" + content[3:],
        "two axes": content[:3] + b"\x02" + content[4:],
        "cut in the header": content[:9],
        "cut in the data": content[:-1],
        "more data": content + b"\x00",
        "a promise of 2^96 bytes": content[:4] + b"\xff" * 12 + content[16:],
        "27 rows": content[:8] + struct.pack(">I", 27) + content[12:16] + content[16 : 16 + 12 * 27 * 28],
        "eleven images": content[:4] + struct.pack(">I", 11) + content[8 : 16 + 11 * 784],
        "labels": idx_header((12,)) + bytes(12),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("empty", "is not an IDX file of images or labels: it begins with nothing"),
        ("another kind of file", "is not an IDX file of images or labels: it begins with 3c 21 44 4f"),
        ("floats", "is not an IDX file of images or labels: it begins with 00 00 0d 03"),
        ("two axes", "is not an IDX file of images or labels: it begins with 00 00 08 02"),
        ("cut in the header", "is damaged: it ends within its header"),
        ("cut in the data", "is damaged: its header promises 9408 bytes of data, and there are only 9407"),
        ("more data", "is damaged: its header promises 9408 bytes of data, and there are more"),
        ("a promise of 2^96 bytes", "is damaged: its header promises 79228162458924105385300197375 bytes"),
        ("27 rows", r"must hold images of 28 x 28 and one number each; got the shapes \(12, 27, 28\) and \(12,\)"),
        ("eleven images", "has 11 images in train-images-idx3-ubyte, but 12 labels"),
        ("labels", r"got the shapes \(12,\) and \(12,\)"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_file_is_refused(tmp_path, write_mnist, kind, message, suffix):
    write_mnist(tmp_path)
    path = tmp_path / IMAGES
    content = damage(path.read_bytes(), kind)
    path.unlink()
    (tmp_path / f"{IMAGES}{suffix}").write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_empty_files_are_refused(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / IMAGES).write_bytes(idx_header((0, 28, 28)))
    (tmp_path / LABELS).write_bytes(idx_header((0,)))
    with pytest.raises(DataError, match="has 0 images in train-images-idx3-ubyte, but 0 labels"):
        read(tmp_path)


def test_a_label_above_nine_is_refused(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / LABELS).write_bytes(idx_header((12,)) + bytes([10] * 12))
    with pytest.raises(DataError, match="must be 0 to 9; got 10"):
        read(tmp_path)


def test_images_in_place_of_labels_are_refused(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / LABELS).write_bytes((tmp_path / IMAGES).read_bytes())
    with pytest.raises(DataError, match=r"got the shapes \(12, 28, 28\) and \(12, 28, 28\)"):
        read(tmp_path)


@pytest.mark.parametrize("position", [0, 3, 20, -6])
def test_a_flipped_byte_in_a_gzip_file_is_noticed(tmp_path, write_mnist, position):
    write_mnist(tmp_path, ".gz")
    path = tmp_path / f"{LABELS}.gz"
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz"):
        read(tmp_path)


def test_a_cut_gzip_file_is_noticed(tmp_path, write_mnist):
    write_mnist(tmp_path, ".gz")
    path = tmp_path / f"{IMAGES}.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"cannot read .*train-images-idx3-ubyte\.gz"):
        read(tmp_path)


def test_a_missing_file_is_named(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / FILES[3]).unlink()
    with pytest.raises(DataError, match=r"has neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte\.gz"):
        read(tmp_path)


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        read_idx(tmp_path)
