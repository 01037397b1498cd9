"""The compiled kernels of `kernels.c`: built once a machine where there is a C compiler, and otherwise not used.

Each takes float32 tensors on the CPU. What they compute is what the PyTorch code beside each call computes; with
``VBDROP_NATIVE=0`` in the environment, or without a compiler, that code runs instead.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor, nn

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = (
    "-O3",
    "-march=native",
    "-std=c99",
    "-fPIC",
    "-shared",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
POINTER, SIZE, FLOAT, COUNT = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
SIGNATURES: dict[str, tuple[list[type], type | None]] = {
    "vbdrop_posterior": ([POINTER, POINTER, FLOAT, POINTER, POINTER, SIZE, COUNT], None),
    "vbdrop_posterior_backward": ([POINTER, POINTER, POINTER, POINTER, POINTER, SIZE, COUNT], None),
    "vbdrop_sample": ([POINTER, POINTER, POINTER, FLOAT, SIZE, COUNT], None),
    "vbdrop_kl": ([POINTER, POINTER, SIZE, COUNT], ctypes.c_double),
    "vbdrop_kl_backward": ([POINTER, POINTER, FLOAT, POINTER, POINTER, SIZE, COUNT], None),
}
PARALLEL_FROM = 32_768
"""Tensors with fewer elements are done by one thread."""


def _cache_folder() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "vbdrop" / "kernels"


def _processor() -> str:
    """What tells one kind of processor from another: code for one may not run on the other."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def _openmp() -> list[str]:
    """Flags for OpenMP with the runtime that torch itself has loaded, so that there is one pool of threads; or none."""
    runtimes = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    runtimes += sorted(Path(torch.__file__).parent.parent.glob("torch.libs/libgomp*.so*"))
    return ["-fopenmp", str(runtimes[0])] if runtimes else ["-fopenmp-simd"]


def _build(compiler: str) -> Path:
    """The shared library for this source, compiler and processor; compiled if it is not there yet."""
    flags = [*FLAGS, *_openmp()]
    what = "\0".join([SOURCE.read_text(), compiler, *flags, _processor()])
    target = _cache_folder() / f"{hashlib.sha256(what.encode()).hexdigest()[:32]}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            fresh = Path(folder) / target.name
            command = [compiler, str(SOURCE), "-o", str(fresh), *flags, "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            fresh.replace(target)
    return target


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The compiled kernels, or None if they are switched off or cannot be built here."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if os.environ.get("VBDROP_NATIVE") == "0" or compiler is None:
        return None
    try:
        kernels = ctypes.CDLL(str(_build(compiler)))
    except (OSError, RuntimeError, subprocess.SubprocessError):  # RuntimeError: there is no home directory
        return None
    for name, (arguments, result) in SIGNATURES.items():
        function = getattr(kernels, name)
        function.argtypes, function.restype = arguments, result
    return kernels


def usable(*tensors: Tensor) -> bool:
    """Whether the kernels can work on these tensors: plain ones with memory of their own, all of one shape."""
    shape = tensors[0].shape
    for t in tensors:  # a loop, since it is run many times a step
        if t.dtype is not torch.float32 or not t.is_cpu or t.shape != shape or not t.is_contiguous():
            return False
        if type(t) is not Tensor and type(t) is not nn.Parameter:
            return False
    return library() is not None


def _call(name: str, *arguments: Tensor | float, n: int) -> float | None:
    kernels = library()
    if kernels is None:
        raise RuntimeError("the compiled kernels are not there; ask `usable` first.")
    threads = torch.get_num_threads() if n >= PARALLEL_FROM else 1
    values = [a.data_ptr() if isinstance(a, Tensor) else a for a in arguments]
    result: float | None = getattr(kernels, name)(*values, n, threads)
    return result


def posterior(theta: Tensor, log_sigma2: Tensor, limit: float) -> tuple[Tensor, Tensor]:
    """``theta`` masked where ``sigma2 >= limit * theta**2``, and ``sigma2 = exp(log_sigma2)``."""
    weight, sigma2 = torch.empty_like(theta), torch.empty_like(log_sigma2)
    _call("vbdrop_posterior", theta, log_sigma2, limit, weight, sigma2, n=theta.numel())
    return weight, sigma2


def posterior_backward_(theta: Tensor, weight: Tensor, sigma2: Tensor, by_theta: Tensor, by_sigma2: Tensor) -> None:
    """Zero ``by_theta`` where ``weight`` is not ``theta``, and multiply ``by_sigma2`` by ``sigma2``, in place."""
    _call("vbdrop_posterior_backward", theta, weight, sigma2, by_theta, by_sigma2, n=weight.numel())


def sample_(mean: Tensor, variance: Tensor, noise: Tensor, floor: float) -> None:
    """Add ``deviation * noise`` to ``mean``, and divide ``noise`` by the deviation (0 at the floor), in place."""
    _call("vbdrop_sample", mean, variance, noise, floor, n=mean.numel())


def hierarchical_kl(theta: Tensor, log_sigma2: Tensor) -> Tensor:
    """The sum of the hierarchical prior's KL."""
    total = _call("vbdrop_kl", theta, log_sigma2, n=theta.numel())
    return torch.tensor(0.5 * (total or 0.0), dtype=theta.dtype)


def hierarchical_kl_gradients(theta: Tensor, log_sigma2: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """``scale`` times the gradients of `hierarchical_kl`."""
    by_theta, by_log_sigma2 = torch.empty_like(theta), torch.empty_like(log_sigma2)
    _call("vbdrop_kl_backward", theta, log_sigma2, scale, by_theta, by_log_sigma2, n=theta.numel())
    return by_theta, by_log_sigma2
