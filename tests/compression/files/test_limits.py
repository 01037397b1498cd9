import pytest

from vbdrop.compression.files.format import FileFormatError
from vbdrop.compression.files.limits import DEEPEST, Limits, check_depth


def test_all_bounds_together_stay_below_fifty_megabytes_and_ten_files():
    """A node takes 8 kB, an index 48 bytes; the file is in memory twice, as bytes and as tensors."""
    for size in (0, 10**5, 10**7, 10**9):
        limits = Limits(size)
        reading = 2 * size + limits.parsed + 8000 * limits.nodes + 48 * limits.indices + limits.dense
        assert reading < 50 * 10**6 + 10 * size
        assert limits.dense + limits.call < 50 * 10**6 + 10 * size


def test_the_model_that_is_given_counts():
    assert Limits(100, model=5000).dense == Limits(100).dense + 5000
    Limits(0, model=10**9).check_dense(10**9)
    with pytest.raises(FileFormatError, match=r"would take 1,000,000,000 bytes of memory; .*pass a fresh model"):
        Limits(0).check_dense(10**9)


@pytest.mark.parametrize(
    ("text", "fits"),
    [(b"[]" * 40_000, True), (b"[]" * 50_000, False), (b"0," * 130_000, True), (b"0," * 150_000, False)],
)
def test_text_is_weighed_before_it_is_parsed(text, fits):
    if fits:
        Limits(0).check_text(text, "the header")
    else:
        with pytest.raises(FileFormatError, match=r"the header would take about [\d,]+ bytes of memory; 8,388,608 are"):
            Limits(0).check_text(text, "the header")


@pytest.mark.parametrize("wrap", [lambda value: [0, value], lambda value: {"a": 0, "b": value}])
def test_depth_is_found_without_recursion(wrap):
    value = []
    for _ in range(DEEPEST):
        value = wrap(value)
    check_depth(value)
    for _ in range(100_000):
        value = wrap(value)
    with pytest.raises(FileFormatError, match="nested at most 64 deep"):
        check_depth(value)
    while value:  # taken apart here, since Python's own way recurses
        value = value.pop() if isinstance(value, list) else value.pop("b")
