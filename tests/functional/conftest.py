"""The linear maps as fixtures."""

import pytest
from tests.functional.cases import CASES, Case


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(params=["linear", "conv2d-stride", "transposed1d-stride"])
def some_case(request) -> Case:
    """One of each kind, for what does not depend on the options."""
    return CASES[request.param]
