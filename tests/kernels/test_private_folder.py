"""Where code that will be run may be kept."""

import os
import stat

import pytest

from vbdrop.kernels.private_folder import private_folder, why_not_private

STRANGER = 4321
root = pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can give a file to another user")


def test_a_fresh_cache_is_private(cache):
    folder = private_folder()
    assert folder == cache
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_cache_that_others_may_write_to_is_refused_with_the_reason(cache, caplog, mode):
    cache.mkdir(parents=True)
    cache.chmod(mode)
    folder = private_folder()
    assert folder != cache
    assert why_not_private(folder) is None
    assert f"others may write to it (mode {mode:o}); chmod go-w makes it private" in caplog.text
    assert private_folder() == folder, "the fallback is found again"


@root
def test_a_cache_of_another_user_is_refused(cache, caplog):
    cache.mkdir(parents=True, mode=0o700)
    os.chown(cache, STRANGER, -1)
    assert private_folder() != cache
    assert f"it belongs to another user (number {STRANGER}" in caplog.text


@root
def test_a_folder_within_another_users_is_refused(cache):
    cache.mkdir(parents=True, mode=0o700)
    os.chown(cache.parent, STRANGER, -1)
    assert why_not_private(cache) == f"{cache.parent} belongs to another user (number {STRANGER}; this is 0)"


def test_a_folder_within_one_that_everybody_may_write_to_needs_the_sticky_bit(cache):
    cache.mkdir(parents=True, mode=0o700)
    cache.parent.chmod(0o777)
    assert why_not_private(cache) == f"everybody may write to {cache.parent} (mode 777)"
    cache.parent.chmod(0o1777)
    assert why_not_private(cache) is None


def test_a_link_to_a_folder_of_others_does_not_hide_it(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert why_not_private(tmp_path / "link").startswith("others may write to it")


def test_without_a_place_that_is_private_each_process_has_its_own(cache, tmp_path):
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    fallback = private_folder()
    fallback.chmod(0o777)
    first, second = private_folder(), private_folder()
    assert len({cache, fallback, first, second}) == 4
    assert why_not_private(first) is None
    assert first.parent == tmp_path


def test_a_cache_that_cannot_be_made_is_named(cache, caplog):
    cache.parent.parent.write_text("a file where the folder should be")
    assert why_not_private(private_folder()) is None
    assert "cannot be kept" in caplog.text
    assert str(cache) in caplog.text
