"""Build the source distribution, then the wheel from it, and test the wheel in an otherwise empty environment.

    python tools/check_wheel.py [--folder DIR]

The new environment has only the package's own requirements, in the versions of ``constraints.txt``, and none of its
extras. The check imports the package, converts, trains and compresses a network, saves, loads and exports it as C.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SHIPPED = ("src", "tests", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt")
"""What the build may see; the tests are included, to check that it leaves them out."""
BUILD = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"

USE = """
import importlib.util, subprocess, sys

import torch
from torch import nn

import vbdrop
from vbdrop.kernels import kernels

assert "site-packages" in vbdrop.__file__, vbdrop.__file__
extras = ("typer", "rich", "matplotlib", "onnx", "onnxruntime", "PIL")
assert not [name for name in extras if importlib.util.find_spec(name)], "the environment is not bare"
assert kernels().library is not None, kernels().reason

torch.manual_seed(0)
inputs = torch.randn(512, 16)
targets = (inputs[:, 0] + inputs[:, 1] > 0).long()
network = lambda: nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
model = network()
vbdrop.convert_(model, vbdrop.Weights())
elbo = vbdrop.ELBO(model, n_train=len(inputs))
optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=0.01), lr=0.01)
for step in range(600):
    optimizer.zero_grad()
    elbo(nn.functional.cross_entropy(model(inputs), targets)).backward()
    optimizer.step()
small = vbdrop.compress(model.eval(), inputs[:64])
right = (small.model(inputs).argmax(1) == targets).float().mean().item()
assert right > 0.9, right
assert sum(p.count_nonzero() for p in small.model.parameters()) < 300
small.save("small.safetensors")
loaded = vbdrop.load("small.safetensors", model=network())
assert torch.equal(loaded(inputs), small.model(inputs))
for ending in ("c", "pt2"):
    exported = vbdrop.export(small, f"net.{ending}", inputs[:8])
    assert exported.verified, exported
try:
    vbdrop.export(small, "net.onnx", inputs[:8])
except ImportError as error:
    assert "pip install" in str(error), error
else:
    raise AssertionError("ONNX needs an extra that is not there")
done = subprocess.run([sys.executable, "-m", "vbdrop", "info"], capture_output=True, text=True)
assert done.stderr == "vbdrop: the command line needs typer and rich: pip install 'vbdrop[cli]'\\n", done.stderr
print(f"vbdrop works without its extras: {right:.1%} right, kernels in {kernels().path}")
"""


def check(folder: Path) -> str:
    """Build, install and use the package in a folder.

    Args:
        folder: An empty folder.

    Returns:
        What the program in the new environment printed.

    Raises:
        ValueError: The source distribution contains tests.
        CalledProcessError: A step failed; its output is on standard error.
    """
    tree, dist = folder / "tree", folder / "dist"
    tree.mkdir()
    dist.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in SHIPPED:
        if (PROJECT / name).is_dir():
            shutil.copytree(PROJECT / name, tree / name, ignore=ignored)
        else:
            shutil.copy(PROJECT / name, tree / name)
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv/bin/python")
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "install", "setuptools>=77"], folder)
    _run([python, "-c", BUILD, str(dist)], tree)
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tests = [name for name in archive.getnames() if "/tests/" in name]
    if tests:
        raise ValueError(f"the source distribution must not contain tests; it contains {tests[:3]} …")
    _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(dist), str(sdist)], folder)
    (wheel,) = dist.glob("*.whl")
    _run([*pip, "install", "--constraint", str(PROJECT / "constraints.txt"), str(wheel)], folder)
    return _run([python, "-c", USE], folder)


def _run(command: list[str], folder: Path) -> str:
    """Run a step in a folder, without the packages of this environment."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "http"))}
    done = subprocess.run(command, cwd=folder, env={**environment, **kept}, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)
    return done.stdout


def main() -> None:
    """Run the check in a separate folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="an empty folder to keep everything in")
    args = parser.parse_args()
    if args.folder is not None:
        print(check(args.folder.resolve()), end="")
        return
    with tempfile.TemporaryDirectory() as name:
        print(check(Path(name)), end="")


if __name__ == "__main__":
    main()
