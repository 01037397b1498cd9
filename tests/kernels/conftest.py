"""A cache of its own for each test, the linear maps that kernels run over, and the kernels in several builds."""

from contextlib import contextmanager

import pytest
import torch
from tests.functional.cases import CASES, Case

from vbdrop.kernels import binding, build, load


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the kernels in a cache that is empty; it does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where the fallback goes
    return tmp_path / "cache" / "vbdrop" / "kernels"


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.fixture(params=["linear", "conv2d-stride", "transposed1d-stride"])
def some_case(request) -> Case:
    """One of each kind, for what does not depend on the options."""
    return CASES[request.param]


@pytest.fixture(params=["compiled", "torch"])
def _kernels(request, monkeypatch) -> None:
    """With the compiled kernels, where there is a compiler, and without."""
    if request.param == "torch":
        monkeypatch.setattr(binding, "library", lambda: None)


@pytest.fixture
def products(switched_on):
    """The kernels with products of their own, which are there on processors that those fit."""
    if not binding.has_products():
        pytest.skip("NOT TESTED: the kernels have no products for this processor, and torch's are used")


@pytest.fixture
def wide_registers(compiler, monkeypatch):
    """A context with the kernels for registers of 16 numbers, which any processor can run, if slowly."""

    @contextmanager
    def wide():
        kernels = load(build(compiler, "-DWIDTH=16"))
        binding.room.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(binding, "library", lambda: kernels)
            yield
        binding.room.cache_clear()

    return wide


@pytest.fixture(params=[1, 2], ids="{} threads".format)
def threads(request):
    """One thread, and then two."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)
