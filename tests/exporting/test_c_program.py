import dataclasses

import numpy as np
import pytest

from vbdrop.exporting.c_program import (
    Affine,
    Buffer,
    ConvolutionOperation,
    CProgram,
    Geometry,
    LinearOperation,
    Pointwise,
    fold_affine,
)

X, A, B, C = (Buffer(i, 6) for i in range(4))
WEIGHT = np.arange(18.0).reshape(6, 3) - 4


def linear(target: Buffer = A) -> LinearOperation:
    return LinearOperation("fc", X, target, WEIGHT, np.ones(6), rows=1)


def scale(source: Buffer, target: Buffer, channels: int = 6, inner: int = 1) -> Affine:
    return Affine("bn", source, target, np.arange(1.0, channels + 1), np.full(channels, 0.5), inner)


def test_scales_and_shifts_are_folded_into_the_product_before_them():
    (folded,) = fold_affine(CProgram(X, C, [linear(), scale(A, B), scale(B, C, channels=1, inner=6)])).operations
    factor = np.arange(1.0, 7)
    assert folded.target == C
    np.testing.assert_allclose(folded.weight, WEIGHT * factor[:, None])
    np.testing.assert_allclose(folded.bias, factor + 0.5 + 0.5)


def test_a_weight_that_is_zero_stays_zero():
    (folded,) = fold_affine(CProgram(X, B, [linear(), scale(A, B)])).operations
    assert np.array_equal(folded.weight == 0, WEIGHT == 0)


@pytest.mark.parametrize(
    "operations",
    [
        [linear(), scale(A, B), Pointwise("relu", A, C, "v")],
        [linear(), scale(A, B, channels=3, inner=2)],
        [Pointwise("relu", X, A, "v"), scale(A, B)],
        [linear(), Pointwise("relu", A, C, "v"), scale(C, B)],
    ],
    ids=["read twice", "of other channels", "without a product", "behind an activation"],
)
def test_what_cannot_be_folded_stays(operations):
    assert fold_affine(CProgram(X, B, operations)).operations == operations


def test_a_product_that_is_the_output_is_not_changed():
    operations = [linear(), scale(A, B)]
    assert fold_affine(CProgram(X, A, operations)).operations == operations


GEOMETRY = Geometry(16, (40, 40), (3, 3), (1, 1), (1, 1), (1, 1), (40, 40))


def test_patches_stay_within_their_limit():
    assert GEOMETRY.depth == 144
    assert GEOMETRY.rows == 2
    assert GEOMETRY.patch_size == 2 * 40 * 144 <= 16 * 1024


@pytest.mark.parametrize(
    ("changes", "is_unfolded"),
    [
        ({"kernel": (1, 1), "padding": (0, 0)}, True),
        ({"kernel": (1, 1), "padding": (0, 0), "stride": (2, 2), "output": (20, 20)}, False),
        ({"kernel": (40, 40), "padding": (0, 0), "output": (1, 1)}, True),
        ({"kernel": (40, 40), "output": (3, 3)}, False),
        ({}, False),
    ],
)
def test_planes_can_be_their_own_patches(changes, is_unfolded):
    geometry = dataclasses.replace(GEOMETRY, **changes)
    assert geometry.is_unfolded == is_unfolded
    assert (geometry.patch_size == 0) == is_unfolded


def test_the_longer_of_pixels_and_channels_is_the_inner_loop():
    small = dataclasses.replace(GEOMETRY, size=(2, 2), output=(2, 2))

    def convolution(geometry: Geometry, outputs: int) -> ConvolutionOperation:
        return ConvolutionOperation("conv", X, A, np.zeros((outputs, 16, 3, 3)), np.zeros(outputs), geometry)

    assert not convolution(GEOMETRY, 64).by_pixel
    assert not convolution(small, 4).by_pixel
    assert convolution(small, 64).by_pixel
    assert convolution(small, 64).workspace == 4 * (144 + 64)
