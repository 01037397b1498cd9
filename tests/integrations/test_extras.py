import subprocess
import sys

import pytest

from vbdrop.integrations.extras import imported


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("lightning", "lightning", "lightning"),
        ("transformers", "transformers", "transformers"),
        ("transformers", "accelerate", "transformers"),
        ("skorch", "skorch", "skorch"),
        ("ray", "ray", "ray"),
    ],
)
def test_a_missing_extra_names_the_line_that_installs_it(module, package, extra):
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        + ("import types; sys.modules['transformers'] = types.ModuleType('transformers')\n" * (package == "accelerate"))
        + f"import vbdrop.integrations.{module}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"ImportError: vbdrop.integrations.{extra} needs {package}: pip install 'vbdrop[{extra}]'" in done.stderr


def test_the_core_imports_no_trainer():
    code = (
        "import sys, torch, vbdrop\n"
        "model = torch.nn.Linear(4, 2)\n"
        "vbdrop.convert_(model, vbdrop.Weights())\n"
        "elbo = vbdrop.ELBO(model, n_train=10)\n"
        "elbo(torch.nn.functional.mse_loss(model(torch.ones(3, 4)), torch.zeros(3, 2))).backward()\n"
        "vbdrop.scalars(model, elbo), vbdrop.compress(model, torch.ones(1, 4))\n"
        "extras = {'lightning', 'transformers', 'skorch', 'sklearn', 'accelerate', 'ray'}\n"
        "sys.exit(', '.join(extras & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_an_error_inside_a_package_that_is_there_is_its_own(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("raise RuntimeError('broken')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(RuntimeError, match="broken"):
        imported("broken_package", "lightning")
