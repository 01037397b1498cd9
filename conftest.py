"""For the tests and for the examples in docstrings: the same noise every time, and one thread."""

import os
from importlib.util import find_spec

import pytest
import torch
from tests.trained import chosen_seed, moved_seeds

torch.set_num_threads(int(os.environ.get("VBDROP_TEST_THREADS", "1")))

collect_ignore = [  # their examples need a package that an extra brings
    f"src/vbdrop/integrations/{trainer}.py"
    for trainer in ("lightning", "ray", "skorch", "transformers")
    if find_spec(trainer) is None
]


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Seeds torch before each test, so that a test gives the same alone, in any order and in any process."""
    torch.manual_seed(0)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):  # noqa: ANN201
    """Run what asserts on an outcome of training at the chosen seed (see tests/trained.py)."""
    if chosen_seed() == 0 or item.get_closest_marker("trained") is None:
        return (yield)
    with moved_seeds():
        return (yield)
