"""A cache of its own for each test."""

import pytest


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The folder of the kernels in a cache that is empty; it does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where the fallback goes
    return tmp_path / "cache" / "vbdrop" / "kernels"
