"""The paper's figures against each other."""

from itertools import pairwise

import pytest

from vbdrop.experiments import PROTOCOLS, PUBLISHED, published_in

SHAPES = {
    "lenet-300-100": (235_200, 30_000, 1_000),
    "lenet-5": (500, 25_000, 400_000, 5_000),
}


@pytest.mark.parametrize("number", PUBLISHED)
def test_every_figure_has_its_row_and_column(number):
    protocol = PROTOCOLS[number]
    for row, cells in PUBLISHED[number].items():
        protocol.row(row)
        assert set(cells) == {column.key for column in protocol.columns}


def test_the_papers_own_method_is_best_where_the_paper_prints_it_in_bold():
    for number in (1, 2, 3):
        for column in PUBLISHED[number]["vbd"]:
            errors = {row: cells[column].error for row, cells in PUBLISHED[number].items()}
            assert min(errors, key=errors.get) == "vbd"


@pytest.mark.parametrize("column", SHAPES)
@pytest.mark.parametrize("row", ["pruning", "dns", "vd", "vbd-low-error", "vbd"])
def test_sparsity_per_layer_gives_the_printed_ratio(row, column):
    figures = published_in(4, row, column)
    kept = [count * (1 - zeros / 100) for count, zeros in zip(SHAPES[column], figures.sparsity, strict=True)]
    # The paper rounds the sparsities to 0.1 % or 1 %: half a step of the largest layer is up to 15 % of what is kept.
    assert sum(SHAPES[column]) / sum(kept) == pytest.approx(figures.ratio, rel=0.16)


def weights(units: tuple[int, ...], kernels: bool) -> int:
    if not kernels:
        return sum(a * b for a, b in pairwise(units))
    conv1, conv2, inputs, hidden = units
    return 25 * conv1 + 25 * conv1 * conv2 + inputs * hidden + 10 * hidden


@pytest.mark.parametrize("row", PUBLISHED[5])
def test_the_ratios_of_table_5_follow_from_its_neurons(row):
    for column, total in (("lenet-500-300", 545_000), ("lenet-5", 430_500)):
        figures = published_in(5, row, column)
        assert total / weights(figures.units, column == "lenet-5") == pytest.approx(figures.ratio, rel=0.005)


def test_what_the_paper_does_not_have():
    assert published_in(4, "rigl", "lenet-5") is None
