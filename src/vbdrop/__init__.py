"""vbdrop: a network learns its own dropout rates, and can then become a smaller plain model.

The public names are loaded on first use, so that `import vbdrop` is fast and the reports do not need torch.
"""

from importlib import import_module
from typing import Any

_PUBLIC = {
    "ELBO": "objective",
    "Prediction": "prediction",
    "Rates": "layers",
    "Target": "targets",
    "Units": "layers",
    "Warmup": "objective",
    "Weights": "layers",
    "apply_plan_": "compression",
    "compress": "compression",
    "convert_": "convert",
    "deterministic_": "convert",
    "export": "exporting",
    "freeze_dead_": "convert",
    "kl": "objective",
    "load": "compression",
    "measure": "exporting",
    "param_groups": "convert",
    "predict": "prediction",
    "rates": "convert",
    "recalibrate_": "convert",
    "register_layer": "layers",
    "register_rule": "analysis",
    "sampling": "prediction",
    "scalars": "integrations",
    "shrink": "targets",
    "sweep": "compression",
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a public name can be anything
    if name not in _PUBLIC:
        raise AttributeError(f"module 'vbdrop' has no attribute {name!r}")
    return getattr(import_module(f"vbdrop.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return __all__
