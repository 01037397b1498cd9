import numpy as np
import pytest
from scipy.io import savemat

from vbdrop.data import DataError
from vbdrop.data.sources import load_spec
from vbdrop.data.spec import Spec
from vbdrop.data.svhn import SVHN, read


def test_images_come_channels_first_and_label_10_is_the_digit_0(tmp_path, colour_arrays, write_svhn):
    write_svhn(tmp_path)
    for found, wanted in zip(read(tmp_path), colour_arrays, strict=True):
        np.testing.assert_array_equal(found, wanted)
        assert found.flags.c_contiguous
    assert (read(tmp_path).train_labels == 0).any()


def test_the_photograph_of_a_digit_is_known_where_the_index_lies_beside_it(tmp_path, colour_arrays, write_svhn):
    write_svhn(tmp_path)
    spec = Spec("SVHN", "", layouts=SVHN.layouts)
    assert load_spec("svhn", spec, tmp_path).train_groups is None
    photographs = np.arange(len(colour_arrays.train_labels), dtype="<i4") // 2 + 1
    photographs.tofile(tmp_path / "train_photo.i32")
    found = load_spec("svhn", spec, tmp_path)
    assert found.train_groups.tolist() == photographs.tolist()
    photographs[:-1].tofile(tmp_path / "train_photo.i32")
    with pytest.raises(DataError, match=r"the index of groups in .* must have one number for each of the"):
        load_spec("svhn", spec, tmp_path)


@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_labels_may_be_bytes_or_matlab_numbers(tmp_path, write_svhn, kind):
    write_svhn(tmp_path)
    savemat(tmp_path / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[10], [3]], kind)})
    assert read(tmp_path).test_labels.tolist() == [0, 3]


X, Y = np.zeros((32, 32, 3, 2), np.uint8), np.ones((2, 1), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"y": Y}, "must hold `X`, bytes of shape 32 x 32 x 3 x count; got nothing of the kind"),
        ({"X": X}, "must hold `y`, a label for each of 2 images; got nothing of the kind"),
        ({"X": X.astype(float), "y": Y}, "got float64 of shape"),
        ({"X": X[:, :, :1], "y": Y}, r"got uint8 of shape \(32, 32, 1, 2\)"),
        ({"X": X[..., 0], "y": Y[:1]}, r"got uint8 of shape \(32, 32, 3\)"),
        ({"X": X[..., :0], "y": Y[:0]}, "must hold `y`, a label for each of 0 images"),
        ({"X": X, "y": Y[:1]}, r"must hold `y`, a label for each of 2 images; got uint8 of shape \(1, 1\)"),
        ({"X": X, "y": Y * 0}, "must hold labels from 1 to 10"),
        ({"X": X, "y": Y * 11}, "must hold labels from 1 to 10"),
        ({"X": X, "y": Y * np.nan}, "must hold labels from 1 to 10"),
        ({"X": X, "y": Y * 1.5}, "must hold labels from 1 to 10"),
        ({"X": X, "y": np.array([["a"], ["b"]])}, "must hold `y`, .* got nothing of the kind"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path, write_svhn, content, message):
    write_svhn(tmp_path)
    savemat(tmp_path / "train_32x32.mat", content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"MATLAB 5.0", b"<html>" * 100, b"\x89HDF\r\n\x1a\n" + bytes(600), b"MATLAB 7.3" + bytes(600)]
)
def test_a_file_of_another_kind_is_refused(tmp_path, write_svhn, content):
    write_svhn(tmp_path)
    (tmp_path / "test_32x32.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"test_32x32\.mat"):
        read(tmp_path)


@pytest.mark.parametrize("keep", [100, 128, 140, 1000, -1])
def test_a_cut_file_is_noticed(tmp_path, write_svhn, keep):
    write_svhn(tmp_path)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"train_32x32\.mat"):
        read(tmp_path)


def test_a_missing_file_is_named(tmp_path, write_svhn):
    write_svhn(tmp_path)
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(DataError, match=r"cannot read .*test_32x32\.mat"):
        read(tmp_path)
