import hashlib

import pytest
import torch

from vbdrop.data import Dataset, hold_out


def numbered(count: int) -> Dataset:
    """A set whose labels are the numbers of its images, from 1,000 on in the test part."""
    images = torch.arange(count).view(-1, 1, 1, 1).byte()
    return Dataset("numbered", images, torch.arange(count), images[:5], torch.arange(1000, 1005), checksum="abc")


def test_mnist_gives_55000_and_5000_and_always_the_same():
    split = hold_out(numbered(60_000))
    assert (len(split.train_labels), len(split.test_labels)) == (55_000, 5_000)
    digest = hashlib.sha256(split.test_labels.numpy().tobytes()).hexdigest()
    assert digest == "9a6320f589a31db94ededd037fb45897f2f2a89db933b1d98282016c1e020c51"


def test_the_parts_are_disjoint_complete_and_keep_images_and_labels_together():
    split = hold_out(numbered(100), 30)
    assert sorted(torch.cat([split.train_labels, split.test_labels]).tolist()) == list(range(100))
    assert torch.equal(split.train_images.flatten().long(), split.train_labels)
    assert torch.equal(split.test_images.flatten().long(), split.test_labels)
    assert split.train_labels.diff().min() > 0


def test_the_real_test_data_is_out_of_reach():
    assert hold_out(numbered(100), 30).test_labels.max() < 100


def test_seed_size_and_origin_are_in_the_checksum():
    splits = [
        hold_out(numbered(100), 30),
        hold_out(numbered(100), 30, seed=1),
        hold_out(numbered(100), 31),
        hold_out(hold_out(numbered(100), 30), 30),
    ]
    assert len({split.checksum for split in splits}) == 4
    assert not torch.equal(splits[0].test_labels, splits[1].test_labels)
    assert hold_out(numbered(100), 30).checksum == splits[0].checksum


@pytest.mark.parametrize("n_valid", [0, -1, 100, 5_000])
def test_a_part_that_leaves_nothing_is_refused(n_valid):
    with pytest.raises(ValueError, match=f"`n_valid` must be between 1 and 99, .* got {n_valid}"):
        hold_out(numbered(100), n_valid)
