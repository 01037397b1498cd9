import pytest
import torch

from vbdrop.data.dataset import Arrays, Dataset, in_memory

IMAGES, LABELS = torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("train_images", IMAGES.float(), "`train_images` must be uint8 .* got torch.float32"),
        ("test_images", IMAGES[:, 0], r"`test_images` must be uint8 of shape .* got torch.uint8 of shape \(3, 2, 2\)"),
        ("train_labels", LABELS[:2], r"`train_labels` must be int64, one for each of the 3 images; .*\(2,\)"),
        ("test_labels", LABELS.int(), "`test_labels` must be int64, .* got torch.int32"),
    ],
)
def test_parts_that_do_not_fit_are_refused(field, value, message):
    parts = {"train_images": IMAGES, "train_labels": LABELS, "test_images": IMAGES, "test_labels": LABELS}
    with pytest.raises(ValueError, match=message):
        Dataset(name="x", checksum="", **(parts | {field: value}))


def test_images_are_not_copied(colour_arrays):
    dataset = in_memory("x", colour_arrays, "sum")
    assert dataset.train_images.data_ptr() == colour_arrays.train_images.ctypes.data
    assert dataset.input_shape == (3, 32, 32)
    for name, array in Arrays(*colour_arrays)._asdict().items():
        assert getattr(dataset, name).tolist() == array.tolist()
