import json
import shutil
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from vbdrop.data import DataError
from vbdrop.data.cifar10 import read_pickles, read_pngs


def test_both_layouts_give_the_same_images_in_the_same_order(
    tmp_path, colour_arrays, write_cifar_pickles, write_cifar_pngs
):
    write_cifar_pickles(tmp_path)
    write_cifar_pngs(tmp_path)
    for read in (read_pickles, read_pngs):
        for found, wanted in zip(read(tmp_path), colour_arrays, strict=True):
            np.testing.assert_array_equal(found, wanted)
            assert found.flags.c_contiguous


def test_a_hostile_batch_is_refused_and_does_nothing(tmp_path, write_cifar_pickles, hostile_pickle):
    write_cifar_pickles(tmp_path)
    (tmp_path / "data_batch_4").write_bytes(hostile_pickle(tmp_path / "created"))
    with pytest.raises(DataError, match="data_batch_4 is refused"):
        read_pickles(tmp_path)
    assert not (tmp_path / "created").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "data_batch_2 is damaged"),
        (b"\x80\x02}.", "must hold `data`, an array with 3072 bytes per image"),
        (b"\x80\x02}(U\x04dataK\x01u.", "must hold `data`"),
    ],
)
def test_a_batch_without_images_is_refused(tmp_path, write_cifar_pickles, content, message):
    write_cifar_pickles(tmp_path)
    (tmp_path / "data_batch_2").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_pickles(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"U\x06labels]q\x08(K\x00", b"U\x06labels]q\x08(", "as many labels as images; got 10 for 11"),
        (b"U\x06labels]q\x08(K\x00", b"U\x06labels]q\x08(K\x0a", "a list of labels from 0 to 9"),
        (b"U\x06labels", b"U\x06lables", "a list of labels from 0 to 9"),
        (b"K\x0bM\x00\x0c", b"K\x16M\x00\x06", "must hold `data`, an array with 3072 bytes per image"),
    ],
    ids=["a label too few", "a label above nine", "no labels", "images of 1536 bytes"],
)
def test_a_batch_that_does_not_fit_together_is_refused(tmp_path, write_cifar_pickles, old, new, message):
    write_cifar_pickles(tmp_path)
    path = tmp_path / "test_batch"
    content = path.read_bytes()
    assert content.count(old) == 1
    path.write_bytes(content.replace(old, new))
    with pytest.raises(DataError, match=message):
        read_pickles(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_5", "test_batch"])
def test_a_missing_batch_is_named(tmp_path, write_cifar_pickles, name):
    write_cifar_pickles(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"cannot read .*{name}"):
        read_pickles(tmp_path)


@pytest.mark.parametrize("name", ["data_batch_1.png", "test_batch.png", "train_lables.json"])
def test_a_missing_file_of_the_png_layout_is_named(tmp_path, write_cifar_pngs, name):
    write_cifar_pngs(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=f"cannot read .*{name}"):
        read_pngs(tmp_path)


@pytest.mark.parametrize("keep", [0, 4, 20, 60, 1000, -30])
def test_a_cut_png_is_noticed(tmp_path, write_cifar_pngs, keep):
    write_cifar_pngs(tmp_path)
    path = tmp_path / "data_batch_3.png"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cannot read .*data_batch_3\.png"):
        read_pngs(tmp_path)


@pytest.mark.parametrize("position", [3, 18, 30, 45, 2000])
def test_a_flipped_byte_in_a_png_is_noticed(tmp_path, write_cifar_pngs, position):
    write_cifar_pngs(tmp_path)
    path = tmp_path / "data_batch_3.png"
    content = bytearray(path.read_bytes())
    content[position] ^= 0x55
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"data_batch_3\.png"):
        read_pngs(tmp_path)


@pytest.mark.parametrize("position", [8, 33], ids=["header", "pixels"])
def test_a_png_with_a_part_of_length_0_is_noticed(tmp_path, write_cifar_pngs, position):
    write_cifar_pngs(tmp_path)
    path = tmp_path / "data_batch_3.png"
    content = bytearray(path.read_bytes())
    content[position : position + 4] = bytes(4)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*data_batch_3\.png"):
        read_pngs(tmp_path)


def test_a_png_that_claims_to_be_huge_is_not_unpacked(tmp_path, write_cifar_pngs):
    write_cifar_pngs(tmp_path)
    path = tmp_path / "data_batch_3.png"
    content = bytearray(path.read_bytes())
    content[16:24] = struct.pack(">II", 60_000, 60_000)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"cannot read .*data_batch_3\.png: .*decompression bomb"):
        read_pngs(tmp_path)


@pytest.mark.parametrize(
    ("mode", "size"), [("L", (1024, 3)), ("RGBA", (1024, 3)), ("RGB", (32, 32)), ("RGB", (1024, 10_001))]
)
def test_another_kind_of_png_is_refused(tmp_path, write_cifar_pngs, mode, size):
    write_cifar_pngs(tmp_path)
    Image.new(mode, size).save(tmp_path / "test_batch.png")
    with pytest.raises(DataError, match=f"must be an RGB image.* got {mode}, {size[0]} x {size[1]}"):
        read_pngs(tmp_path)


def test_another_image_format_is_refused(tmp_path, write_cifar_pngs):
    write_cifar_pngs(tmp_path)
    Image.new("RGB", (1024, 3)).save(tmp_path / "other.bmp")
    shutil.move(tmp_path / "other.bmp", tmp_path / "test_batch.png")
    with pytest.raises(DataError, match=r"cannot read .*test_batch\.png"):
        read_pngs(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2", "cannot read"),
        ("{}", "a list of labels from 0 to 9"),
        ("[1.5]", "a list of labels from 0 to 9"),
        ("[10]", "a list of labels from 0 to 9"),
        ("[true]", "a list of labels from 0 to 9"),
        (json.dumps([0] * 14), "got 14 for 15"),
        ("[" * 100_000, "cannot read"),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, write_cifar_pngs, content, message):
    write_cifar_pngs(tmp_path)
    (tmp_path / "train_lables.json").write_text(content)
    with pytest.raises(DataError, match=message):
        read_pngs(tmp_path)
