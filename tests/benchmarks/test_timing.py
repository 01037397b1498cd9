from benchmarks.timing import ratio


def test_the_ratio_is_taken_round_by_round():
    seconds = {"plain": [1.0, 2.0, 10.0], "twice": [2.0, 4.0, 20.0], "other": [3.0, 2.0, 5.0]}
    assert ratio(seconds, "twice", "plain") == 2
    assert ratio(seconds, "other", "plain") == 1
