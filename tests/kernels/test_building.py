"""The shared library in the cache: built once, checked each time, built again if it is broken."""

import hashlib
import os
import subprocess

import pytest

from vbdrop.kernels.building import HEADERS, SOURCES, BuildError, build, source_digest, why_broken
from vbdrop.kernels.signatures import load

QUICK = "-O0"  # what is built here is loaded and never timed


_FILES: dict[str, bytes] = {}


@pytest.fixture
def built(cache, compiler):
    """A sound library in this test's cache; it is compiled for the first one only."""
    if not _FILES:
        build(compiler, QUICK)
        _FILES.update({file.name: file.read_bytes() for file in cache.iterdir()})
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in _FILES.items():
        (cache / name).write_bytes(content)
        (cache / name).chmod(0o600)
    return build(compiler, QUICK)


def test_it_is_built_once_and_found_again(built, compiler, cache, caplog):
    assert built.parent == cache
    before = built.stat().st_ino
    assert build(compiler, QUICK) == built
    assert built.stat().st_ino == before
    assert caplog.text == ""
    assert sorted(file.suffix for file in cache.iterdir()) == [".sha256", ".so"]
    load(built)


def test_one_that_another_process_has_built_meanwhile_stays(compiler, cache, tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir()
    slow = tmp_path / "cc"  # while it runs, the other process ends
    end = f"[ $1 = --version ] || ln {kept}/* {cache} 2> /dev/null\nexit 0"
    slow.write_text(f'#!/bin/sh\n{compiler} "$@"\n{end}\n')
    slow.chmod(0o755)
    path = build(str(slow), QUICK)
    for file in list(cache.iterdir()):
        file.rename(kept / file.name)
    assert build(str(slow), QUICK) == path
    assert path.stat().st_ino == (kept / path.name).stat().st_ino


def truncate(path):
    os.truncate(path, 4096)


def junk(path):
    path.write_bytes(b"junk")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


def without_checksum(path):
    path.with_suffix(".sha256").unlink()


def other_checksum(path):
    path.with_suffix(".sha256").write_text("0" * 64)


def link(path):
    elsewhere = path.with_name("precious")
    elsewhere.write_text("precious")
    path.unlink()
    path.symlink_to(elsewhere)


def writable_for_others(path):
    path.chmod(0o666)


@pytest.mark.parametrize(
    "damage",
    [truncate, junk, flip, empty, without_checksum, other_checksum, link, writable_for_others],
    ids=lambda f: f.__name__,
)
def test_what_is_broken_is_built_again_and_said(built, compiler, caplog, damage):
    sound = built.read_bytes()
    damage(built)
    assert why_broken(built) is not None
    assert build(compiler, QUICK) == built
    assert why_broken(built) is None
    assert len(built.read_bytes()) == len(sound)
    assert f"{built} is being rebuilt: " in caplog.text
    assert not built.is_symlink()
    load(built)


def test_a_library_without_the_functions_is_built_again_although_its_checksum_is_right(
    built, compiler, tmp_path, caplog
):
    (tmp_path / "other.c").write_text("int vbdrop_sample_of_something_else(void) { return 1; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.c"], check=True)
    built.write_bytes((tmp_path / "other.so").read_bytes())
    built.with_suffix(".sha256").write_text(hashlib.sha256(built.read_bytes()).hexdigest())
    build(compiler, QUICK)
    assert "it lacks vbdrop_sample, " in caplog.text
    load(built)


@pytest.mark.skipif(os.getuid() != 0, reason="NOT TESTED: only root can give a file to another user")
def test_a_file_that_another_user_planted_is_not_loaded(built, compiler, caplog):
    os.chown(built, 4321, -1)
    build(compiler, QUICK)
    assert "belongs to another user" in caplog.text
    assert why_broken(built) is None


def test_another_version_of_the_compiler_builds_its_own(built, compiler, tmp_path):
    wrapper = tmp_path / "cc"
    names = set()
    for version in ("12.2", "12.3", "12.2"):
        wrapper.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo {version} && exit\nexec {compiler} "$@"\n')
        wrapper.chmod(0o755)
        names.add(build(str(wrapper), QUICK).name)
    assert len(names) == 2


def test_what_the_compiler_says_is_told(cache, tmp_path):
    refusing = tmp_path / "cc"
    refusing.write_text("#!/bin/sh\necho 'cc: no such option' >&2\nexit 1\n")
    refusing.chmod(0o755)
    with pytest.raises(BuildError, match="cannot compile them: cc: no such option"):
        build(str(refusing))
    assert list(cache.iterdir()) == []


def test_the_kernels_are_told_apart_by_every_line_of_their_source(tmp_path, monkeypatch):
    here = source_digest()
    copies = {"SOURCES": [], "HEADERS": []}
    for name, files in (("SOURCES", SOURCES), ("HEADERS", HEADERS)):
        for file in files:
            copies[name].append(tmp_path / file.name)
            copies[name][-1].write_bytes(file.read_bytes())
        monkeypatch.setattr(f"vbdrop.kernels.building.{name}", copies[name])
    assert source_digest() == here
    digests = {here}
    for file in (*copies["SOURCES"], *copies["HEADERS"]):
        file.write_text(file.read_text() + "/* changed */\n")
        digests.add(source_digest())
    assert len(digests) == 1 + len(SOURCES) + len(HEADERS) > 1
