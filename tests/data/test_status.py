import pytest

from vbdrop.data import DATASETS, DataError, status


def test_each_set_has_a_line_with_where_it_is(tmp_path, write_mnist):
    write_mnist(tmp_path / "MNIST" / "raw")
    rows = {row.name: row for row in status(tmp_path)}
    assert list(rows) == list(DATASETS)
    assert rows["mnist"].folder == tmp_path / "MNIST" / "raw"
    assert {name for name, row in rows.items() if row.here} == {"digits", "mnist"}
    assert all(row.problem is None for row in rows.values())


def test_a_check_says_what_is_wrong(tmp_path, write_mnist):
    write_mnist(tmp_path)
    (tmp_path / "train_32x32.mat").write_bytes(b"")
    rows = {row.name: row for row in status(tmp_path, check=True)}
    assert "the train images in" in rows["mnist"].problem
    assert "are not the published ones" in rows["mnist"].problem
    assert "train_32x32.mat" in rows["svhn"].problem
    assert rows["digits"].problem is None
    assert rows["cifar10"].problem is None
    assert not rows["cifar10"].here


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(DataError, match="must be an existing folder"):
        status(tmp_path / "nowhere")
