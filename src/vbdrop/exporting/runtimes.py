"""What is timed: a network in PyTorch, in ONNX Runtime, as a program of torch.export, and as C through `ctypes`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import nn

from vbdrop.exporting.agreement import Inputs
from vbdrop.exporting.c_compiler import FAST, compile_network
from vbdrop.exporting.latency import Case
from vbdrop.exporting.onnx import open_session
from vbdrop.exporting.program import load_program

Runtime = Callable[[list[Inputs]], Case]
"""Inputs that are gone through in turn -> what is timed."""


def in_torch(model: nn.Module) -> Runtime:
    """The model itself."""

    def make(samples: list[Inputs]) -> Case:
        return lambda call: model(*samples[call % len(samples)])

    return make


def in_program(path: Path) -> Runtime:
    """A ``.pt2`` file."""
    return in_torch(load_program(path))


def in_onnx(path: Path) -> Runtime:
    """An ``.onnx`` file, with one thread."""
    session = open_session(path, threads=1)
    names = [value.name for value in session.get_inputs()]

    def make(samples: list[Inputs]) -> Case:
        feeds = [dict(zip(names, (value.numpy() for value in sample), strict=True)) for sample in samples]
        return lambda call: session.run(None, feeds[call % len(feeds)])

    return make


def in_c(path: Path) -> Runtime:
    """A ``.c`` file, compiled for this machine."""
    network = compile_network(path, FAST)

    def make(samples: list[Inputs]) -> Case:
        arrays = [np.ascontiguousarray(sample[0].numpy(), dtype=np.float32) for sample in samples]
        count = len(arrays[0])
        output = np.empty((count, network.output_size), dtype=np.float32)
        # The addresses stand beside the arrays, which have to live as long as they.
        inputs, target = [(array.ctypes.data, array) for array in arrays], (output.ctypes.data, output)
        if count == 1:
            return lambda call: network.predict(inputs[call % len(inputs)][0], target[0])
        return lambda call: network.predict_batch(inputs[call % len(inputs)][0], target[0], count)

    return make


RUNTIMES: dict[str, tuple[str, Callable[[Path], Runtime]]] = {
    ".onnx": ("ONNX Runtime", in_onnx),
    ".pt2": ("torch.export", in_program),
    ".c": ("C", in_c),
}
"""The ending of an export -> the name of what runs it, and how."""
