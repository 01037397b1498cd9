import gzip
import io
import tarfile

import pytest

from vbdrop.data.archive import unpack
from vbdrop.data.errors import FetchError


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "set.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, content in {"package/data/a": b"first", "package/b": b"second", "../evil": b"x", "a": b"no"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("package/link")
        link.type, link.linkname = tarfile.SYMTYPE, "../../outside"
        tar.addfile(link)
        folder = tarfile.TarInfo("package/folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
    return path


@pytest.fixture
def out(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_only_the_named_files_come_out(archive, out, tmp_path):
    unpack(archive, "package/data", ["a"], out)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == {"a": b"first"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "set.tar.gz"]


@pytest.mark.parametrize("name", ["link", "folder", "nothing"])
def test_what_is_no_file_is_refused(archive, out, name):
    with pytest.raises(FetchError, match=f"package/{name}"):
        unpack(archive, "package", ["b", name], out)


@pytest.mark.parametrize("keep", [0, 5, 60, -9])
def test_a_cut_archive_is_noticed(archive, out, keep):
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(FetchError, match=r"set\.tar\.gz (is damaged|has no)"):
        unpack(archive, "package", ["b", "nothing"], out)


def test_a_wrong_checksum_at_the_end_is_noticed(archive, out):
    with gzip.open(archive) as file:
        members = file.read().rstrip(b"\x00")  # without the blocks that say where an archive ends
    content = bytearray(gzip.compress(members + bytes(-len(members) % tarfile.BLOCKSIZE)))
    content[-8] ^= 1
    archive.write_bytes(content)
    with pytest.raises(FetchError, match=r"set\.tar\.gz is damaged: CRC"):
        unpack(archive, "package", ["nothing"], out)


def test_another_kind_of_file_is_noticed(archive, out):
    archive.write_bytes(b"<html>not found</html>" * 50)
    with pytest.raises(FetchError, match=r"set\.tar\.gz is damaged"):
        unpack(archive, "package", ["b"], out)
