from pathlib import Path

import pytest

from vbdrop.data import DATASETS, DataError
from vbdrop.data.folders import SYSTEM, find, search_path


def test_the_order_of_looking(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("VBDROP_DATA", raising=False)
    assert search_path() == [tmp_path / "vbdrop", SYSTEM]
    monkeypatch.setenv("VBDROP_DATA", str(tmp_path))
    assert search_path() == [tmp_path, tmp_path / "vbdrop", SYSTEM]
    other = tmp_path / "other"
    other.mkdir()
    assert search_path(other) == [other]


def test_a_chosen_folder_must_exist(monkeypatch, tmp_path):
    with pytest.raises(DataError, match=r"the data folder must be an existing folder; got .*/nowhere"):
        search_path(tmp_path / "nowhere")
    monkeypatch.setenv("VBDROP_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"the folder in VBDROP_DATA must be an existing folder; got .*/nowhere"):
        search_path()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mnist", "MNIST/raw/train-images-idx3-ubyte"),
        ("mnist", "MNIST/raw/train-images-idx3-ubyte.gz"),
        ("mnist", "t10k-labels-idx1-ubyte.gz"),
        ("fashion-mnist", "FashionMNIST/raw/train-images-idx3-ubyte"),
        ("fashion-mnist", "fashion-mnist/train-images-idx3-ubyte.gz"),
        ("fashion-mnist", "train-images-idx3-ubyte"),
        ("cifar10", "cifar-10-batches-py/data_batch_1"),
        ("cifar10", "test_batch"),
        ("cifar10", "test_batch.png"),
        ("svhn", "train_32x32.mat"),
        ("svhn", "svhn/train_32x32.mat"),
    ],
)
def test_torchvisions_layout_and_a_flat_one_are_found(tmp_path, name, path):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    folder, layout = find(DATASETS[name], [tmp_path])
    assert folder.resolve() == file.parent.resolve()
    assert any(file.name.startswith(wanted) for wanted in layout.files)


def test_mnist_in_its_own_folder_is_not_taken_for_fashion_mnist(tmp_path, write_mnist):
    write_mnist(tmp_path / "MNIST" / "raw")
    assert find(DATASETS["fashion-mnist"], [tmp_path]) is None


def test_the_first_folder_that_has_it_wins(tmp_path, write_mnist):
    write_mnist(tmp_path / "b")
    write_mnist(tmp_path / "c")
    roots = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    assert find(DATASETS["mnist"], roots)[0] == tmp_path / "b" / Path()
