"""Files that SciPy writes, read without it, and every kind of damage."""

import struct
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.io import savemat

from vbdrop.data import DataError
from vbdrop.data import matlab as module
from vbdrop.data.matlab import read_matlab

ARRAYS = {
    "X": np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5),
    "y": np.array([[10], [2], [-3]], np.int16),
    "a_longer_name": np.linspace(-1, 1, 7).reshape(1, 7),
    "single": np.float32([[1.5, 2.5]]),
    "empty": np.zeros((3, 0), np.int32),
}


@pytest.mark.parametrize("compressed", [False, True])
def test_every_kind_of_number_comes_back(tmp_path, compressed):
    savemat(tmp_path / "a.mat", ARRAYS, do_compression=compressed)
    found = read_matlab(tmp_path / "a.mat")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("compressed", [False, True])
def test_other_variables_are_left_out(tmp_path, compressed):
    others = {"text": "hello", "z": np.array([[1j]]), "cell": np.array([1, "a"], object), "struct": {"a": 1}}
    savemat(tmp_path / "a.mat", {**others, "y": ARRAYS["y"]}, do_compression=compressed)
    assert list(read_matlab(tmp_path / "a.mat")) == ["y"]


@pytest.mark.parametrize(
    "content",
    [b"", b"MATLAB 5.0", b"<html>" * 100, b"\x89HDF\r\n\x1a\n" + bytes(600), b"MATLAB 7.3".ljust(124) + b"\x00\x02IM"],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content):
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.mat is not a MATLAB 5 file"):
        read_matlab(tmp_path / "a.mat")


def test_the_other_byte_order_is_refused(tmp_path):
    savemat(tmp_path / "a.mat", ARRAYS)
    content = bytearray((tmp_path / "a.mat").read_bytes())
    content[124:128] = b"\x01\x00MI"
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(DataError, match="or has another byte order"):
        read_matlab(tmp_path / "a.mat")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"cannot read .*nowhere\.mat"):
        read_matlab(tmp_path / "nowhere.mat")


def uncompressed(tmp_path) -> bytearray:
    """A file with one variable: header 128, tag 8, flags 16, sizes 16 at 152, name 8 at 168, bytes at 176."""
    savemat(tmp_path / "a.mat", {"x": np.arange(8, dtype=np.uint8).reshape(2, 4)})
    return bytearray((tmp_path / "a.mat").read_bytes())


@pytest.mark.parametrize(
    ("at", "number", "message"),
    [
        (128, 13, "an element of type 13 where a variable should be"),
        (132, 1 << 31, "an element promises 2147483648 bytes, and there are fewer"),
        (152, 6, "the sizes or the numbers of an array are of an unknown type"),
        (156, 7, "the sizes or the numbers of an array are of an unknown type"),
        (160, 3, r"an array of the shape \(3, 4\) has 8 bytes"),
        (160, -2 & 0xFFFFFFFF, r"an array of the shape \(-2, 4\) has 8 bytes"),
        (168, (5 << 16) | 1, "an element promises 5 bytes, and there are fewer"),
        (176, 9999, "the sizes or the numbers of an array are of an unknown type"),
        (176, 4, r"an array of the shape \(2, 4\) has|are of an unknown type"),
        (180, 4, "of an array|an array of the shape"),
    ],
)
def test_contradictions_are_noticed(tmp_path, at, number, message):
    content = uncompressed(tmp_path)
    content[at : at + 4] = struct.pack("<I", number)
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(DataError, match=f"is damaged: .*({message})"):
        read_matlab(tmp_path / "a.mat")


def test_sizes_below_zero_are_noticed_even_if_their_product_is_right(tmp_path):
    content = uncompressed(tmp_path)
    content[160:168] = struct.pack("<ii", -2, -4)
    (tmp_path / "a.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"an array of the shape \(-2, -4\) has 8 bytes"):
        read_matlab(tmp_path / "a.mat")


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("keep", [130, 140, 170, -1, -9])
def test_a_cut_file_is_noticed(tmp_path, compressed, keep):
    path = tmp_path / "a.mat"
    savemat(path, {"X": ARRAYS["X"]}, do_compression=compressed)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"a\.mat is damaged"):
        read_matlab(path)


def test_a_wrong_checksum_is_noticed(tmp_path):
    path = tmp_path / "a.mat"
    savemat(path, {"X": ARRAYS["X"]}, do_compression=True)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="incorrect data check"):
        read_matlab(path)


def test_a_variable_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    savemat(tmp_path / "a.mat", {"X": np.zeros(10_000)}, do_compression=True)
    monkeypatch.setattr(module, "_LIMIT", 5_000)
    with pytest.raises(DataError, match="is cut off, or larger than a gigabyte"):
        read_matlab(tmp_path / "a.mat")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), compressed=st.booleans())
def test_any_damage_gives_arrays_or_a_clear_error(tmp_path, data, compressed):
    path = tmp_path / "a.mat"
    savemat(path, ARRAYS, do_compression=compressed)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(124, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with suppress(DataError):
        assert all(isinstance(array, np.ndarray) for array in read_matlab(path).values())
