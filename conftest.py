"""For the tests and for the examples in docstrings: the same noise every time, and one thread."""

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds torch before each test, so that a test gives the same alone, in any order and in any process."""
    torch.manual_seed(0)
