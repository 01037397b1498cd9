"""The shared library of the kernels: compiled once per source, compiler and processor, and kept with a checksum."""

import hashlib
import logging
import platform
import subprocess
import tempfile
from pathlib import Path

import torch

from vbdrop.files import write_atomically
from vbdrop.kernels.compiler import compiler_version
from vbdrop.kernels.private_folder import private_folder, why_not_private
from vbdrop.kernels.signatures import SIGNATURES

log = logging.getLogger(__name__)

_FOLDER = Path(__file__).parent / "source"
SOURCES = sorted(_FOLDER.glob("*.c"))
HEADERS = sorted(_FOLDER.glob("*.h"))
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
COMPILE_SECONDS = 120


class BuildError(Exception):
    """The kernels cannot be compiled, or the compiler does not run.

    Example:
        >>> raise BuildError("cc: unrecognized option '-march=native'")
        Traceback (most recent call last):
        vbdrop.kernels.building.BuildError: cc: unrecognized option '-march=native'
    """


def source_digest() -> str:
    """A digest of the kernels' source, which identifies their arithmetic.

    Example:
        >>> len(source_digest())
        12
    """
    return hashlib.sha256(b"".join(file.read_bytes() for file in (*SOURCES, *HEADERS))).hexdigest()[:12]


def build(compiler: str, *extra: str) -> Path:
    """The shared library for this source, compiler, processor and extra flags; compiled unless an intact one exists.

    Args:
        compiler: The path of the compiler.
        extra: Additional flags.

    Raises:
        BuildError: If it cannot be compiled.
        OSError: If it cannot be written.
    """
    flags = [*FLAGS, *extra, *_openmp()]
    path = private_folder() / f"{_key(compiler, flags)}.so"
    if (reason := why_broken(path)) is None:
        return path
    if path.exists():
        log.warning("the library of compiled kernels %s is being rebuilt: %s", path, reason)
    content = _compiled(compiler, flags)
    if why_broken(path) is None:  # another process was faster, and may be about to load it
        return path
    for old in (path, _checksum_file(path)):  # writing would follow a link and keep the owner
        if old.is_symlink() or (old.exists() and why_not_private(old) is not None):
            old.unlink()
    write_atomically(path, content, mode=0o600)
    write_atomically(_checksum_file(path), hashlib.sha256(content).hexdigest().encode(), mode=0o600)
    return path


def why_broken(path: Path) -> str | None:
    """Why a shared library must not be loaded; None if it belongs to the user, is intact and has all functions.

    All of this is checked on the file's bytes: loading a damaged library can crash the process.
    """
    try:
        for file in (path, _checksum_file(path)):
            if (reason := why_not_private(file)) is not None:
                return f"{file.name}: {reason}"
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest().encode() != _checksum_file(path).read_bytes():
            return "its checksum is wrong"
    except OSError as error:
        return str(error)
    missing = [name for name in SIGNATURES if name.encode() + b"\0" not in content]
    return f"it lacks {', '.join(missing)}" if missing else None


def _checksum_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _key(compiler: str, flags: list[str]) -> str:
    sources = (file.read_text() for file in (*SOURCES, *HEADERS))
    what = "\0".join([*sources, compiler, compiler_version(compiler), *flags, _processor()])
    return hashlib.sha256(what.encode()).hexdigest()[:32]


def _compiled(compiler: str, flags: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="vbdrop-build-") as folder:
        target = Path(folder) / "kernels.so"
        command = [compiler, *map(str, SOURCES), "-o", str(target), *flags, "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_SECONDS)
            return target.read_bytes()
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode(errors="replace").strip().splitlines()
            raise BuildError(f"{compiler} cannot compile them: {said[0] if said else error}") from error
        except (OSError, subprocess.SubprocessError) as error:
            raise BuildError(f"{compiler} cannot compile them: {error}") from error


def _processor() -> str:
    """A description of the processor: code compiled for one kind may not run on another."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


def _openmp() -> list[str]:
    """Flags for OpenMP with the runtime that torch has loaded, so that both share its threads; else for SIMD only."""
    runtimes = sorted(Path(torch.__file__).parent.glob("lib/libgomp*.so*"))
    runtimes += sorted(Path(torch.__file__).parent.parent.glob("torch.libs/libgomp*.so*"))
    return ["-fopenmp", str(runtimes[0])] if runtimes else ["-fopenmp-simd"]
