"""The functions of the shared library, with the types of their arguments and results."""

import ctypes
from pathlib import Path

POINTER, SIZE, FLOAT, COUNT, SEED = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int, ctypes.c_uint64
SIGNATURES: dict[str, tuple[list[type], type | None]] = {
    "vbdrop_sample": ([POINTER, POINTER, POINTER, FLOAT, COUNT, SEED, POINTER, SIZE, COUNT], None),
    "vbdrop_posterior": ([POINTER, POINTER, FLOAT, POINTER, POINTER, SIZE, COUNT], None),
    "vbdrop_posterior_backward": ([POINTER, POINTER, FLOAT, *[POINTER] * 4, SIZE, COUNT], None),
    "vbdrop_has_products": ([], COUNT),
    "vbdrop_noisy_linear_room": ([*[SIZE] * 3, COUNT], SIZE),
    "vbdrop_noisy_linear": ([*[POINTER] * 5, FLOAT, FLOAT, COUNT, SEED, *[POINTER] * 3, *[SIZE] * 3, COUNT], None),
    "vbdrop_noisy_linear_backward_room": ([*[SIZE] * 3, COUNT, COUNT], SIZE),
    "vbdrop_noisy_linear_backward": ([*[POINTER] * 6, FLOAT, *[POINTER] * 5, *[SIZE] * 3, COUNT], None),
    "vbdrop_gate": ([*[POINTER] * 3, FLOAT, *[POINTER] * 3, COUNT, SEED, POINTER, *[SIZE] * 3, COUNT], None),
    "vbdrop_gate_backward": ([*[POINTER] * 9, *[SIZE] * 3, COUNT], None),
    "vbdrop_gated_linear_room": ([*[SIZE] * 3, COUNT], SIZE),
    "vbdrop_gated_linear": (
        [*[POINTER] * 5, FLOAT, *[POINTER] * 3, COUNT, SEED, *[POINTER] * 2, *[SIZE] * 3, COUNT],
        None,
    ),
    "vbdrop_gated_linear_backward_room": ([*[SIZE] * 3, COUNT], SIZE),
    "vbdrop_gated_linear_backward": ([*[POINTER] * 13, *[SIZE] * 3, COUNT], None),
    "vbdrop_kl": ([POINTER, POINTER, FLOAT, POINTER, POINTER, SIZE, COUNT], ctypes.c_double),
    "vbdrop_log_uniform_kl": ([POINTER, POINTER, FLOAT, POINTER, POINTER, SIZE, COUNT], ctypes.c_double),
}


def load(path: Path) -> ctypes.CDLL:
    """Load the kernels from a shared library and declare the types of their arguments.

    Raises:
        OSError: If it cannot be loaded.
        AttributeError: If it lacks a function.
    """
    kernels = ctypes.CDLL(str(path))
    for name, (arguments, result) in SIGNATURES.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = arguments, result
    return kernels
