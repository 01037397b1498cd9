"""`measure`: bytes and latency of the original, the small model and its exports, measured in one run."""

import statistics
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_model
from torch import Tensor, nn

from vbdrop.compression import Compressed
from vbdrop.exporting.agreement import Inputs, resized
from vbdrop.exporting.exporting import Exported, export, plain_copy
from vbdrop.exporting.latency import interleaved, one_thread
from vbdrop.exporting.runtimes import RUNTIMES, Runtime, in_torch

SAMPLES = 16
"""The number of single samples to cycle through, so that the processor cannot memorise the input."""

ORIGINAL, SMALL = "original, PyTorch", "small, PyTorch"


@dataclass(frozen=True)
class Measured:
    """One way to run a network.

    Attributes:
        bytes: The total size of its files.
        seconds: Batch size -> seconds per call, one entry per round.
    """

    bytes: int
    seconds: dict[int, list[float]]

    def latency(self, batch: int) -> float:
        """The median time of a batch, in seconds."""
        return statistics.median(self.seconds[batch])


@dataclass(frozen=True)
class Measurement:
    """The result of `measure`; it can be printed.

    Attributes:
        rows: "original, PyTorch", "small, C", and so on; a second export of one kind is "small, C, other.c".
    """

    rows: dict[str, Measured]

    def smaller(self, name: str, than: str = ORIGINAL) -> float:
        """How many times smaller one is than another, in bytes."""
        return self.rows[than].bytes / self.rows[name].bytes

    def faster(self, name: str, batch: int, than: str = ORIGINAL) -> float:
        """How many times faster one is than another: the median of the ratios of all rounds."""
        pairs = zip(self.rows[than].seconds[batch], self.rows[name].seconds[batch], strict=True)
        return statistics.median(slow / fast for slow, fast in pairs)

    def __str__(self) -> str:
        batches = list(self.rows[ORIGINAL].seconds)
        titles = "".join(f"{f'batch {batch}':>15}{'faster':>9}" for batch in batches)
        width = max(24, *(len(name) + 2 for name in self.rows))
        lines = [f"{'one thread':<{width}}{'bytes':>12}{'smaller':>9}{titles}"]
        for name, row in self.rows.items():
            times = "".join(
                f"{f'{row.latency(batch) * 1e6:,.1f} µs':>15}{f'{self.faster(name, batch):.1f}x':>9}"
                for batch in batches
            )
            lines.append(f"{name:<{width}}{row.bytes:>12,}{f'{self.smaller(name):.1f}x':>9}{times}")
        return "\n".join(lines)


def measure(
    model: nn.Module,
    small: Compressed | nn.Module,
    exports: Sequence[Exported] = (),
    example_inputs: Tensor | Inputs | None = None,
    batches: Sequence[int] = (1, 64),
    rounds: int = 100,
) -> Measurement:
    """Measure the original, the small model and its exports against each other, interleaved, on one thread.

    The original runs as plain layers, in PyTorch and, if one of the exports is ``.onnx``, also in ONNX Runtime. C is
    compiled with ``-O3 -march=native`` and called through `ctypes`. Bytes count every file: the safetensors file of a
    model in PyTorch, and all files of an export.

    Args:
        model: The original, plain or converted.
        small: The result of `vbdrop.compress`, or a plain model.
        exports: The results of `vbdrop.export` for the small model.
        example_inputs: A batch of real inputs; by default those of ``small``. C skips zeros in them.
        batches: The batch sizes to time.
        rounds: How many times everything is timed.

    Returns:
        A printable table, with the ratios.

    Raises:
        TypeError: ``exports`` is not a list of exports.
        ValueError: The inputs do not fit, or there are none; a batch or the number of rounds is not an int >= 1.

    Example:
        >>> model, small = nn.Linear(64, 64), nn.Linear(64, 4)
        >>> measured = measure(model, small, example_inputs=torch.randn(8, 64), rounds=3)
        >>> f"{measured.smaller('small, PyTorch'):.1f}"
        '14.3'
    """
    _check(exports, batches, rounds)
    small_model, inputs = plain_copy(small, example_inputs)
    original, _ = plain_copy(model, inputs)
    runtimes = {ORIGINAL: in_torch(original), SMALL: in_torch(small_model)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = {ORIGINAL: _saved_bytes(original, folder), SMALL: _small_bytes(small, small_model, folder)}
        files = {"small": list(exports)}
        if any(exported.path.suffix == ".onnx" for exported in exports):
            files = {"original": [export(original, folder / "original.onnx", inputs)], **files}
        for which, written in files.items():
            for exported in written:
                title, load = RUNTIMES[exported.path.suffix]
                row = _free_name(f"{which}, {title}", exported.path, runtimes)
                runtimes[row], sizes[row] = load(exported.path), exported.bytes
        seconds = {batch: time_runtimes(runtimes, inputs, batch, rounds) for batch in batches}
    rows = {name: Measured(sizes[name], {batch: seconds[batch][name] for batch in batches}) for name in runtimes}
    return Measurement(rows)


def time_runtimes(runtimes: dict[str, Runtime], inputs: Inputs, batch: int, rounds: int) -> dict[str, list[float]]:
    """Seconds per call; single samples are taken in turn, while a larger batch is always the same."""
    samples = [resized(inputs, batch)]
    if batch == 1:
        count = min(SAMPLES, len(inputs[0]))
        samples = [tuple(value[i : i + 1] if value.dim() else value for value in inputs) for i in range(count)]
    with one_thread(), torch.inference_mode():
        return interleaved({name: make(samples) for name, make in runtimes.items()}, rounds)


def _check(exports: Sequence[Exported], batches: Sequence[int], rounds: int) -> None:
    if not isinstance(exports, Sequence) or not all(isinstance(exported, Exported) for exported in exports):
        raise TypeError(f"`exports` must be a list of what vbdrop.export returned; got {exports!r}.")
    if not isinstance(batches, Sequence) or not batches or not all(_is_count(batch) for batch in batches):
        raise ValueError(f"`batches` must be a list of batch sizes, ints >= 1; got {batches!r}.")
    if not _is_count(rounds):
        raise ValueError(f"`rounds` must be an int >= 1; got {rounds!r}.")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _free_name(name: str, path: Path, taken: Collection[str]) -> str:
    """`name`; if it is taken, with the file's name added; if that is taken, too, with the whole path."""
    names = (name, f"{name}, {path.name}", f"{name}, {path}")
    return next((free for free in names if free not in taken), names[-1])


def _saved_bytes(model: nn.Module, folder: Path) -> int:
    path = folder / "model.safetensors"
    save_model(model, str(path))
    return path.stat().st_size


def _small_bytes(small: Compressed | nn.Module, model: nn.Module, folder: Path) -> int:
    if isinstance(small, nn.Module):
        return _saved_bytes(model, folder)
    path = folder / "small.safetensors"
    small.save(path)
    return path.stat().st_size
