import dataclasses
import hashlib

import pytest
import torch

from vbdrop.data import DataError, Dataset, hold_out


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


def grouped(count: int) -> Dataset:
    """Groups of one to four neighbours, with numbers that do not start at 0."""
    groups = torch.repeat_interleave(torch.arange(count) * 3 + 7, torch.arange(count) % 4 + 1)[:count]
    return dataclasses.replace(numbered(count), train_groups=groups)


@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_on_both_sides(seed):
    whole = grouped(200)
    split = hold_out(whole, 50, seed=seed, split="group")
    train, valid = (set(whole.train_groups[labels].tolist()) for labels in (split.train_labels, split.test_labels))
    assert not train & valid
    assert len(split.test_labels) == 50
    assert 200 - 50 - 3 <= len(split.train_labels) <= 150  # the rest of the last group is in neither part
    assert torch.equal(split.test_images.flatten().long(), split.test_labels)
    by_image = hold_out(whole, 50, seed=seed)
    parts = (set(whole.train_groups[labels].tolist()) for labels in (by_image.train_labels, by_image.test_labels))
    assert set.intersection(*parts), "single images do share groups"


def test_blocks_are_neighbours():
    split = hold_out(numbered(1000), 250, split="block")
    blocks = {label // 100 for label in split.test_labels.tolist()}
    assert len(blocks) == 3
    assert not blocks & {label // 100 for label in split.train_labels.tolist()}
    assert len(split.test_labels) == 250


def test_the_split_is_in_the_checksum():
    found = {hold_out(grouped(1000), 100, split=split).checksum for split in ("image", "group", "block")}
    assert len(found) == 3


def test_a_split_that_cannot_be_made_is_refused():
    with pytest.raises(DataError, match="the data set numbered has no index of which images belong together"):
        hold_out(numbered(100), 30, split="group")
    with pytest.raises(ValueError, match="`split` must be one of image, group, block; got 'half'"):
        hold_out(numbered(100), 30, split="half")
    with pytest.raises(ValueError, match="must leave some of the groups to train on"):
        hold_out(numbered(100), 30, split="block")
