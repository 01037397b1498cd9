import numpy as np
import pytest

from vbdrop.exporting.c_calls import Places, write_operation
from vbdrop.exporting.c_program import (
    Affine,
    Buffer,
    Combine,
    ConvolutionOperation,
    Gather,
    Geometry,
    LinearOperation,
    Pointwise,
)

PLACES = Places(("input",), "scratch + 8", "scratch + 64")


def linear(weight: np.ndarray) -> LinearOperation:
    return LinearOperation(
        "fc", Buffer(0, weight.shape[1]), Buffer(1, len(weight)), weight, np.zeros(len(weight)), rows=1
    )


def convolution(weight: np.ndarray, size: int) -> ConvolutionOperation:
    out = size - weight.shape[2] + 1
    geometry = Geometry(weight.shape[1], (size, size), weight.shape[2:], (1, 1), (0, 0), (1, 1), (out, out))
    return ConvolutionOperation("conv", Buffer(0, 1), Buffer(1, 1), weight, np.zeros(len(weight)), geometry)


def kernels(operation) -> set[str]:
    return {name for name, _ in write_operation(operation, PLACES).kernels}


def masked(shape: tuple[int, ...], share: float) -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=shape) * (generator.random(shape) < share)


def test_weights_are_stored_sparsely_where_it_pays():
    assert kernels(linear(masked((30, 40), 0.05))) == {"sparse_columns"}
    assert kernels(linear(masked((30, 40), 0.5))) == {"dense_columns"}
    assert kernels(convolution(masked((8, 4, 3, 3), 0.5), 12)) == {"unfold", "sparse_planes"}
    assert kernels(convolution(masked((8, 4, 3, 3), 1.0), 12)) == {"unfold", "dense_planes"}


def test_a_convolution_with_few_pixels_runs_over_its_channels():
    assert kernels(convolution(masked((32, 4, 3, 3), 1.0), 4)) == {"unfold", "dense_columns", "turn"}
    assert kernels(convolution(masked((32, 4, 1, 1), 1.0), 2)) == {"dense_columns", "turn"}


def test_a_weight_that_is_zero_in_single_precision_is_not_stored():
    weight = np.zeros((4, 16))
    weight[1, 3], weight[2, 5] = 0.25, 1e-60
    tables = {table.split("[")[0].split()[-1]: table for table in write_operation(linear(weight), PLACES).tables}
    assert "fc_weight[1] = {\n    0.25f\n}" in tables["fc_weight"]
    assert "fc_at[1] = {\n    1\n}" in tables["fc_at"]


@pytest.mark.parametrize(("outputs", "kind"), [(256, "uint8_t"), (257, "uint16_t")])
def test_positions_are_as_narrow_as_the_layer_allows(outputs, kind):
    weight = np.zeros((outputs, 8))
    weight[-1, 0] = 1.0
    fragment = write_operation(linear(weight), PLACES)
    assert ("sparse_columns", kind) in fragment.kernels
    assert any(table.startswith(f"static const {kind} fc_at[1]") for table in fragment.tables)


def test_an_operation_in_place_copies_first_only_where_it_must():
    relu = Pointwise("relu", Buffer(0, 4), Buffer(1, 4), "v < 0.0f ? 0.0f : v")
    apart = write_operation(relu, PLACES).lines
    assert apart[0] == "memcpy(scratch + 8, input, 4 * sizeof(float));"
    together = write_operation(relu, Places(("scratch + 8",), "scratch + 8", "")).lines
    assert together == apart[1:]
    assert "    scratch[8 + i] = v < 0.0f ? 0.0f : v;" in together


@pytest.mark.parametrize(
    ("other", "inner", "index"), [(24, 1, "i"), (4, 6, "i / 6"), (2, 3, "i / 3 % 2"), (6, 1, "i % 6")]
)
def test_the_second_operand_is_read_where_it_is_broadcast_from(other, inner, index):
    add = Combine("add", Buffer(0, 24), Buffer(1, 24), Buffer(2, other), "+", inner)
    fragment = write_operation(add, Places(("output", "scratch"), "output", ""))
    assert fragment.lines[1] == f"    output[i] += scratch[{index}];"


def test_tables_are_never_empty():
    nothing = Gather("none", Buffer(0, 4), Buffer(1, 0), np.zeros(0, np.int64), 1)
    assert write_operation(nothing, PLACES).tables == ["static const uint8_t none_starts[1] = {\n    0\n};"]


def test_a_scale_and_shift_knows_its_runs():
    affine = Affine("bn", Buffer(0, 24), Buffer(1, 24), np.ones(3), np.zeros(3), inner=4)
    assert write_operation(affine, PLACES).lines[-1] == "affine(scratch + 8, bn_scale, bn_shift, 2, 3, 4);"
