"""The C sources: no warnings, and no undefined behaviour or access out of bounds that the sanitizers can see."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import vbdrop.kernels.building as building

SCRIPT = """
import ctypes, sys
import torch
from vbdrop.kernels import binding
from vbdrop.kernels.signatures import load
kernels = load(sys.argv[1])
binding.library = lambda: kernels
binding.LARGEST_KEPT = 0
torch.set_num_threads(1)
for samples, inputs, outputs in ((1, 1, 1), (3, 5, 2), (17, 33, 7), (34, 130, 61), (5, 2100, 13)):
    x, theta, log_sigma2 = torch.randn(samples, inputs), torch.randn(outputs, inputs), torch.randn(outputs, inputs)
    theta[0, 0] = 0.0
    log_sigma2[0, -1] = 100.0
    bias, alpha, grad = torch.randn(outputs), torch.rand(inputs), torch.randn(samples, outputs)
    for name in ("vbdrop_kl", "vbdrop_log_uniform_kl"):
        for needed in (True, False):
            binding.kl(name, theta, log_sigma2, 0.5, need_gradients=needed)
    weight, sigma2 = binding.posterior(theta, log_sigma2, 20.0)
    binding.posterior_gradients(theta, sigma2, 20.0, theta, theta)
    binding.perturbed(grad, grad.square(), None)
    binding.perturbed(grad, grad.square(), grad)
    for rates in ((log_sigma2, None), (None, alpha)):
        for need in (True, False):
            out, slope = binding.noisy_linear(x, theta, *rates, bias if need else None, 20.0, None)
            binding.noisy_linear_gradients(grad, x, theta, *rates, slope, 20.0, need, need)
    mean, rate = theta[0].contiguous(), log_sigma2[0].contiguous()
    out, *gates = binding.gated_linear(x, mean, rate, theta, bias, 20.0, None)
    for need in (True, False):
        binding.gated_linear_gradients(grad, x, mean, *gates, theta, need, need)
    for space in (1, 3):
        images = torch.randn(samples, inputs, space)
        out, *gates = binding.gate(images, mean, rate, 20.0, space, None)
        binding.gate_gradients(images, images, mean, *gates, True)
print("done")
"""


def test_the_compiler_has_nothing_to_complain_about(compiler, tmp_path):
    flags = [flag for flag in building.FLAGS if flag != "-shared"]
    for source in building.SOURCES:
        command = [compiler, "-c", str(source), *flags, "-fopenmp", "-Wall", "-Wextra", "-o", str(tmp_path / "out.o")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_sanitizers_see_nothing(compiler, tmp_path):
    """Every kernel at sizes around its tiles and stretches, with room of exactly the size that it asks for."""
    library = tmp_path / "kernels.so"
    flags = ["-g", "-O1", "-march=native", "-std=c99", "-fPIC", "-shared", "-fopenmp-simd", "-ffp-contract=fast"]
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    command = [compiler, *map(str, building.SOURCES), "-o", str(library), *flags, *sanitizers, "-lm"]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    runtimes = [_runtime(compiler, name) for name in ("libasan.so", "libubsan.so")]
    if built.returncode or not all(runtimes):
        pytest.skip(f"NOT TESTED: the compiler has no sanitizers ({built.stderr.strip()[:100]})")
    environment = {**os.environ, "LD_PRELOAD": " ".join(map(str, runtimes)), "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(library)], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-3000:]


def _runtime(compiler: str, name: str) -> Path | None:
    """Where the compiler has the runtime of a sanitizer, which has to be loaded before everything else."""
    done = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    path = Path(done.stdout.strip())
    return path if path.is_absolute() and path.exists() else None
