"""``vbdrop bench``."""

import torch


def test_methods_are_measured_against_the_plain_network(vbdrop):
    network = ("--model", "mlp", "--model-arg", "units=12", "--batch", "10", "--steps", "3")
    found = vbdrop("bench", "vbd-weights", *network, "--json").json
    assert list(found["ratio"]) == ["plain", "vbd-weights"]
    assert found["ratio"]["plain"] == 1
    assert 0 < found["milliseconds"]["vbd-weights"] < 1000
    assert (found["threads"], torch.get_num_threads()) == (1, 1)
    out = vbdrop("bench", "vbd-weights", *network).out
    assert "mlp, batches of 10, median of 3 steps, 1 thread" in out


def test_mistakes(vbdrop):
    assert "`method` must be one of" in vbdrop("bench", "magic").err
    assert "`--batch` must be an int >= 1; got 0" in vbdrop("bench", "--batch", "0").err
