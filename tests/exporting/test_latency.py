import time

import pytest
import torch

from vbdrop.exporting.latency import interleaved, one_thread


def test_every_case_runs_in_every_round_and_quick_ones_are_repeated():
    order = []

    def case(name, seconds):
        def run(call):
            order.append((name, call))
            time.sleep(seconds)

        return run

    found = interleaved({"slow": case("slow", 0.02), "quick": case("quick", 0.001)}, rounds=3, round_seconds=0.01)
    assert [len(seconds) for seconds in found.values()] == [3, 3]
    assert min(found["slow"]) >= 0.02
    assert max(found["quick"]) < min(found["slow"])
    names = [name for name, _ in order]
    assert names[-1] == "quick"
    assert names.count("quick") > names.count("slow")
    last_round = names[len(names) - names[::-1].index("slow") - 1 :]
    assert last_round[0] == "slow"
    assert set(last_round[1:]) == {"quick"}
    assert {call for name, call in order if name == "quick"} > {0, 1, 2}


def test_calls_are_numbered_on_from_round_to_round():
    calls = []

    def case(call):
        calls.append(call)
        time.sleep(0.002)

    interleaved({"slow": case}, rounds=4, round_seconds=0.001)
    assert calls == [0, 0, 1, 2, 3, 4]  # the first is to find the number of repeats


def test_the_number_of_threads_is_restored_after_an_error():
    before = torch.get_num_threads()
    torch.set_num_threads(2)

    def fail():
        with one_thread():
            raise KeyError(torch.get_num_threads())

    try:
        with pytest.raises(KeyError, match="1"):
            fail()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
