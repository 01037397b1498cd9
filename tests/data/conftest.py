"""Small data sets in the published layouts, and a server that plays the mirror."""

import gzip
import json
import os
import pickle
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from vbdrop.data.dataset import Arrays


def random_arrays(channels: int, side: int, train: int, test: int) -> Arrays:
    generator = np.random.default_rng(0)

    def part(count: int) -> tuple[np.ndarray, np.ndarray]:
        images = generator.integers(0, 256, (count, channels, side, side), np.uint8)
        return images, (np.arange(count) % 10).astype(np.uint8)

    return Arrays(*part(train), *part(test))


@pytest.fixture
def mnist_arrays() -> Arrays:
    return random_arrays(channels=1, side=28, train=12, test=10)


@pytest.fixture
def colour_arrays() -> Arrays:
    return random_arrays(channels=3, side=32, train=15, test=11)


@pytest.fixture
def write_mnist(mnist_arrays) -> Callable[..., None]:
    """Writes the four IDX files of `mnist_arrays`; the suffix is that of each file."""

    def write(folder: Path, suffix: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in zip(
            ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"),
            mnist_arrays,
            strict=True,
        ):
            shape = array.shape[:1] + array.shape[2:]
            header = b"\x00\x00\x08" + bytes([len(shape)]) + b"".join(struct.pack(">I", size) for size in shape)
            content = header + array.tobytes()
            path = folder / f"{name}-ubyte{suffix}"
            path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)

    return write


def python2_batch(data: np.ndarray, labels: list[int]) -> bytes:
    """A CIFAR-10 batch as Python 2's cPickle wrote it, protocol 2, instruction by instruction."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value  # SHORT_BINSTRING, which Python 3 never writes

    def integer(value: int) -> bytes:
        return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)

    rows, columns = data.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85" + text(b"b") + b"\x87Rq\x05"
        b"(K\x01" + integer(rows) + integer(columns) + b"\x86"
        b"cnumpy\ndtype\nq\x06" + text(b"u1") + b"K\x00K\x01\x87Rq\x07"
        b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<I", data.size) + data.tobytes() + b"tb"
    )
    names = b"".join(text(b"cat_%d.png" % row) + b"r" + struct.pack("<I", 256 + row) for row in range(rows))
    return (
        b"\x80\x02}q\x01(" + text(b"data") + array + text(b"labels") + b"]q\x08("
        b"" + b"".join(integer(label) for label in labels) + b"e" + text(b"batch_label") + text(b"testing")
        + text(b"filenames") + b"](" + names + b"eu."
    )  # fmt: skip


@pytest.fixture
def cifar_batch(colour_arrays) -> bytes:
    """One batch: the pickle that holds the test part of `colour_arrays`."""
    return python2_batch(colour_arrays.test_images.reshape(11, -1), colour_arrays.test_labels.tolist())


@pytest.fixture
def write_cifar_pickles(colour_arrays, cifar_batch) -> Callable[[Path], None]:
    """Writes six pickles with `colour_arrays`, three training images in each of five."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(5):
            part = slice(3 * number, 3 * number + 3)
            images, labels = colour_arrays.train_images[part], colour_arrays.train_labels[part]
            batch = python2_batch(images.reshape(3, -1), labels.tolist())
            (folder / f"data_batch_{number + 1}").write_bytes(batch)
        (folder / "test_batch").write_bytes(cifar_batch)

    return write


@pytest.fixture
def write_cifar_pngs(colour_arrays) -> Callable[[Path], None]:
    """Writes `colour_arrays` as the npm package does: an image in each row of pixels."""

    def sheet(images: np.ndarray, path: Path) -> None:
        rows = np.stack([np.stack([image[:, y, x] for y in range(32) for x in range(32)]) for image in images])
        Image.fromarray(rows).save(path)

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(5):
            sheet(colour_arrays.train_images[3 * number : 3 * number + 3], folder / f"data_batch_{number + 1}.png")
        sheet(colour_arrays.test_images, folder / "test_batch.png")
        (folder / "train_lables.json").write_text(json.dumps(colour_arrays.train_labels.tolist()))
        (folder / "test_lables.json").write_text(json.dumps(colour_arrays.test_labels.tolist()))

    return write


@pytest.fixture
def write_svhn(colour_arrays) -> Callable[[Path], None]:
    """Writes `colour_arrays` as two MATLAB files; compressed, as the published ones."""

    def write(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for part in ("train", "test"):
            images, labels = getattr(colour_arrays, f"{part}_images"), getattr(colour_arrays, f"{part}_labels")
            matlab = {"X": images.transpose(2, 3, 1, 0), "y": np.where(labels == 0, 10, labels)[:, None]}
            savemat(folder / f"{part}_32x32.mat", matlab, do_compression=True)

    return write


class Server:
    """A web server on this computer for the files of a folder; it counts what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.cut_after: int | None = None  # bytes after which each answer breaks off
        self.pause = 0.0  # seconds before each answer
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append(self.path.lstrip("/"))
                time.sleep(server.pause)
                super().do_GET()

            def copyfile(self, source, outputfile) -> None:
                outputfile.write(source.read(server.cut_after))

            def log_message(self, *arguments) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.address = f"http://127.0.0.1:{self._http.server_port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *error) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


@pytest.fixture
def server(tmp_path) -> Iterator[Server]:
    folder = tmp_path / "served"
    folder.mkdir()
    with Server(folder) as running:
        yield running


@pytest.fixture(scope="session")
def npm() -> str:
    """The npm command; where there is none, its tests are skipped, or fail if CI=true asks for all of them."""
    if found := shutil.which("npm"):
        return found
    reason = "NOT TESTED: there is no npm command here"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture
def hostile_pickle() -> Callable[[Path], bytes]:
    """Gives a pickle that creates a file when Python's own reader loads it."""

    class Creator:
        def __init__(self, path: Path) -> None:
            self.path = path

        def __reduce__(self):
            return open, (str(self.path), "w")

    return lambda path: pickle.dumps({b"data": Creator(path)}, protocol=2)
