"""Draw the embedded digits again from MNIST's four IDX files (gzipped or not).

    python tools/draw_digits.py path/to/mnist

The same files give the same bytes (with the same version of zlib). No random numbers are involved: the images of each
class are taken at even steps, so that both halves of MNIST's test set, which are not equally hard, are represented in
proportion.
"""

import argparse
import gzip
import hashlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

PACKAGED = Path(__file__).resolve().parents[1] / "src/vbdrop/data/digits.npz"
PER_CLASS = {"train": 800, "t10k": 200}
SHA256 = {  # of the unpacked IDX files
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def read_idx(folder: Path, name: str) -> Bytes:
    """The array in an IDX file of bytes: a magic number, one big-endian int32 per axis, then the values."""
    packed = folder / f"{name}.gz"
    content = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:
        raise SystemExit(f"{folder / name} must be MNIST's, with the sha256 {SHA256[name]}; got {found}.")
    axes = content[3]
    shape = np.frombuffer(content, ">i4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def evenly(labels: Bytes, per_class: int) -> npt.NDArray[np.intp]:
    """Positions of ``per_class`` examples of each class, at even steps through ``labels``, ascending."""
    positions = [np.flatnonzero(labels == label) for label in range(10)]
    return np.sort(np.concatenate([p[np.arange(per_class) * len(p) // per_class] for p in positions]))


def draw(folder: Path) -> dict[str, Bytes]:
    """The four arrays of ``digits.npz``."""
    arrays = {}
    for source, part in (("train", "train"), ("t10k", "test")):
        images = read_idx(folder, f"{source}-images-idx3-ubyte")
        labels = read_idx(folder, f"{source}-labels-idx1-ubyte")
        kept = evenly(labels, PER_CLASS[source])
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = images[kept], labels[kept]
    return arrays


def main() -> None:
    """Write the file and print the checksum that ``vbdrop.data.digits`` expects."""
    parser = argparse.ArgumentParser(description="Draw the embedded digits from MNIST.")
    parser.add_argument("folder", type=Path, help="where MNIST's IDX files are")
    parser.add_argument("--out", type=Path, default=PACKAGED, help="the file to write (the packaged one)")
    arguments = parser.parse_args()
    np.savez_compressed(arguments.out, **draw(arguments.folder))
    content = arguments.out.read_bytes()
    print(f"{arguments.out}: {len(content):,} bytes, sha256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
