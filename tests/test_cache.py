"""The one cache folder."""

import pytest

from vbdrop.cache import cache_dir


def test_the_cache_follows_the_xdg_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "vbdrop"
    assert cache_dir("kernels") == tmp_path / "vbdrop" / "kernels"


@pytest.mark.parametrize("value", [None, "", "relative/folder"])
def test_without_the_variable_or_with_a_relative_one_it_is_in_the_home_folder(monkeypatch, tmp_path, value):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cache_dir() == tmp_path / ".cache" / "vbdrop"
