import socket
import threading

import pytest

from vbdrop.data import download as module
from vbdrop.data.download import download
from vbdrop.data.errors import FetchError


def silent(what, done, total):
    pass


def test_the_file_arrives_and_progress_ends_at_its_size(tmp_path, server):
    content = bytes(range(256)) * 4_000
    (server.folder / "data.gz").write_bytes(content)
    told = []
    download(server.address + "data.gz", tmp_path / "data.gz", lambda *news: told.append(news))
    assert (tmp_path / "data.gz").read_bytes() == content
    done = [news[1] for news in told]
    assert len(done) >= 3
    assert done == sorted(done)
    assert told[-1] == ("downloading data.gz", len(content), len(content))


def test_a_file_that_is_not_there(tmp_path, server):
    with pytest.raises(FetchError, match=r"cannot download http://127.*/nothing: HTTP Error 404"):
        download(server.address + "nothing", tmp_path / "out", silent)


def test_an_answer_that_breaks_off(tmp_path, server):
    (server.folder / "data").write_bytes(bytes(10_000))
    server.cut_after = 4_000
    with pytest.raises(FetchError, match="was interrupted after 4000 of 10000 bytes"):
        download(server.address + "data", tmp_path / "out", silent)


def test_nobody_there(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{unused.getsockname()[1]}/data"
        with pytest.raises(FetchError, match=r"cannot download .* refused"):
            download(address, tmp_path / "out", silent)


def test_a_server_that_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_TIMEOUT", 0.1)
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(FetchError, match="timed out"):
            download(f"http://127.0.0.1:{mute.getsockname()[1]}/data", tmp_path / "out", silent)


def test_a_server_that_talks_nonsense(tmp_path):
    with socket.socket() as odd:
        odd.bind(("127.0.0.1", 0))
        odd.listen()

        def answer():
            connection, _ = odd.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"\x00\x01\x02\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(FetchError, match="cannot download"):
            download(f"http://127.0.0.1:{odd.getsockname()[1]}/data", tmp_path / "out", silent)
        thread.join()


def test_a_disk_that_cannot_be_written_is_no_fault_of_the_server(tmp_path, server):
    (server.folder / "data").write_bytes(bytes(10))
    with pytest.raises(IsADirectoryError):
        download(server.address + "data", tmp_path, silent)
