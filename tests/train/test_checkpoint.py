"""Checkpoints: whole, checked, and never the wrong one."""

import dataclasses
import hashlib
import io
import warnings
from pathlib import Path

import pytest
import torch

from vbdrop.train import RecordError
from vbdrop.train.checkpoint import FILE, Checkpoint, load, remove, save, warn_if_other_arithmetic
from vbdrop.train.shrinking import Shrunk


@pytest.fixture
def checkpoint():
    model = {"weight": torch.randn(300, 20), "count": torch.tensor(3)}
    return Checkpoint("abc", 7, model, {"state": {0: {"step": torch.tensor(2.0)}}}, torch.get_rng_state(), 120)


def test_what_is_saved_comes_back_to_the_bit(checkpoint, tmp_path):
    save(tmp_path, checkpoint)
    loaded = load(tmp_path, "abc")
    assert (loaded.epoch, loaded.metrics_bytes) == (7, 120)
    assert torch.equal(loaded.model["weight"], checkpoint.model["weight"])
    assert torch.equal(loaded.rng, checkpoint.rng)
    assert loaded.optimizer == checkpoint.optimizer


def test_there_may_be_none(tmp_path):
    assert load(tmp_path, "abc") is None
    remove(tmp_path)


def test_another_runs_is_refused(checkpoint, tmp_path):
    save(tmp_path, checkpoint)
    with pytest.raises(RecordError, match=r"belongs to another run \(abc\); expected xyz"):
        load(tmp_path, "xyz")
    remove(tmp_path)
    assert load(tmp_path, "xyz") is None


@pytest.mark.parametrize("damage", ["empty", "short", "a bit", "text"])
def test_damage_is_seen(damage, checkpoint, tmp_path):
    save(tmp_path, checkpoint)
    path = tmp_path / FILE
    content = bytearray(path.read_bytes())
    if damage == "a bit":
        content[len(content) // 2] ^= 1  # within the weights, where the file's own structure is still right
    damaged = {"empty": b"", "short": content[:-100], "a bit": content, "text": b"hello"}[damage]
    path.write_bytes(damaged)
    with pytest.raises(RecordError, match=r"checkpoint\.pt is damaged .* delete it to start the run again"):
        load(tmp_path, "abc")


def test_a_checkpoint_cannot_run_code(tmp_path):
    class Evil:
        def __reduce__(self):
            return (print, ("run!",))

    save(tmp_path, Checkpoint("abc", 1, {"weight": Evil()}, {}, torch.get_rng_state(), 0))
    with pytest.raises(RecordError, match="is damaged"):
        load(tmp_path, "abc")


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ("0123456789ab", "none", "with the compiled kernels 0123456789ab up to epoch 7 and resumes without"),
        ("none", "0123456789ab", "without compiled kernels up to epoch 7 and resumes with the compiled kernels 01234"),
        ("0123456789ab", "ba9876543210", "kernels 0123456789ab up to epoch 7 and resumes with the compiled kernels ba"),
    ],
)
def test_a_run_that_goes_on_with_another_arithmetic_says_so(checkpoint, tmp_path, then, now, said):
    save(tmp_path, dataclasses.replace(checkpoint, kernels=then))
    loaded = load(tmp_path, "abc")
    with pytest.warns(UserWarning, match=said):
        warn_if_other_arithmetic(loaded, now)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_other_arithmetic(loaded, then)


def test_a_checkpoint_of_an_earlier_version_still_loads(checkpoint, tmp_path):
    fields = {name: value for name, value in vars(checkpoint).items() if name != "kernels"}
    buffer = io.BytesIO()
    torch.save(fields, buffer)
    (tmp_path / FILE).write_bytes(hashlib.sha256(buffer.getvalue()).digest() + buffer.getvalue())
    loaded = load(tmp_path, "abc")
    assert loaded.epoch == 7
    warn_if_other_arithmetic(loaded, "none")


def test_a_checkpoint_that_version_0_1_wrote_still_loads():
    loaded = load(Path(__file__).parent / "version_0_1", "aa5da2a5e6a34fc9")
    assert loaded.epoch == 2
    assert loaded.model["0.weight"].shape == (6, 4)
    assert loaded.kernels is None
    Shrunk.from_data(loaded.shrunk)
