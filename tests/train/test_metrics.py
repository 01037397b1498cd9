"""The lines of a run's metrics."""

import pytest

from vbdrop.train import Epoch, Evaluation, MetricsLog, RecordError, Sparsity, read_metrics


def test_lines_come_back_and_what_no_checkpoint_vouches_for_is_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    full = Epoch(1, 0.25, 1.0, 0.5, 33.0, Evaluation(400, 5, 0.2, 0.03), Sparsity(10, {"fc": 4}))
    with MetricsLog(path) as log:
        log.append(full)
        offset = log.saved_bytes()
        log.append(Epoch(2, 0.125, 0.5, 0.5))
    assert [line["epoch"] for line in read_metrics(path)] == [1, 2]
    with MetricsLog(path, offset) as log:
        log.append(Epoch(2, 0.0625, 0.5, 0.5))
    first, second = read_metrics(path)
    assert first == {
        "epoch": 1, "loss": 0.25, "lr": 1.0, "kl": 33.0, "error": 1.25, "nll": 0.2, "ece": 0.03,
        "weights": 10, "nonzero": {"fc": 4}, "seconds": 0.5,
    }  # fmt: skip
    assert second == {"epoch": 2, "loss": 0.0625, "lr": 0.5, "seconds": 0.5}


def test_a_line_that_is_being_written_is_not_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"epoch": 1}\n{"epo')
    assert read_metrics(path) == [{"epoch": 1}]


@pytest.mark.parametrize("text", ['{"epoch": 1\n', "3\n"])
def test_damage_is_an_error(tmp_path, text):
    path = tmp_path / "metrics.jsonl"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"metrics\.jsonl is damaged"):
        read_metrics(path)
    with pytest.raises(RecordError, match="cannot read"):
        read_metrics(tmp_path / "none.jsonl")
