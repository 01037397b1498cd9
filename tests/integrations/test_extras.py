import subprocess
import sys

import pytest

from vbdrop.integrations.extras import imported

PACKAGES = {  # package -> the module that needs it
    "lightning": "lightning",
    "transformers": "transformers",
    "accelerate": "transformers",
    "skorch": "skorch",
    "ray": "ray",
}

PROGRAM = """
import importlib, sys, types
import torch, vbdrop

model = torch.nn.Linear(4, 2)
vbdrop.convert_(model, vbdrop.Weights())
elbo = vbdrop.ELBO(model, n_train=10)
assert "torch._dynamo" not in sys.modules, "the compiler is imported, which takes longer than to import torch"
elbo(torch.nn.functional.mse_loss(model(torch.ones(3, 4)), torch.zeros(3, 2))).backward()
vbdrop.scalars(model, elbo), vbdrop.compress(model, torch.ones(1, 4))
assert not {"lightning", "transformers", "skorch", "sklearn", "accelerate", "ray"} & set(sys.modules)

for package, module in PACKAGES.items():
    if package == "accelerate":
        sys.modules["transformers"] = types.ModuleType("transformers")
    sys.modules[package] = None
    try:
        importlib.import_module(f"vbdrop.integrations.{module}")
    except ImportError as error:
        print(error)
"""


def test_the_core_imports_no_trainer_and_a_missing_one_names_the_line_that_installs_it():
    code = f"PACKAGES = {PACKAGES!r}\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        f"vbdrop.integrations.{module} needs {package}: pip install 'vbdrop[{module}]'"
        for package, module in PACKAGES.items()
    ]


def test_an_error_inside_a_package_that_is_there_is_its_own(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="broken"):
        imported("broken_package", "lightning")
