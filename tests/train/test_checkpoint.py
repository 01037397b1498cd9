"""Checkpoints: whole, checked, and never the wrong one."""

import pytest
import torch

from vbdrop.train import RecordError
from vbdrop.train.checkpoint import FILE, Checkpoint, load, remove, save


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
    with pytest.raises(RecordError, match=r"is of another run \(abc\); expected xyz"):
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
