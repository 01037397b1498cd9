"""Layers of other packages: they are added to the table once the user has imported the package; vbdrop imports none."""

import importlib
import sys
from typing import Any

from torch import nn

from vbdrop.layers.inputs_first import InputsFirstLinear
from vbdrop.layers.layer import NoisyLayer
from vbdrop.layers.table import LAYERS

IMPORTED: dict[str, tuple[str, type[NoisyLayer]]] = {
    "Conv1D": ("transformers.pytorch_utils", InputsFirstLinear),
}
"""The name of a layer -> the module that defines it, and the noisy class that it is combined with."""


def add_imported_layers_() -> None:
    """Add to the table the layers of packages that have been imported since the last call.

    Example:
        >>> add_imported_layers_()
        >>> nn.Linear in LAYERS
        True
    """
    for name, (module, noisy) in IMPORTED.items():
        plain = getattr(sys.modules.get(module), name, None)
        if isinstance(plain, type) and plain not in LAYERS:
            _join(name, plain, noisy)


def _join(name: str, plain: type[nn.Module], noisy: type[NoisyLayer]) -> None:
    """Create the noisy class of a plain layer as an attribute of this module, so that pickle finds it."""
    joined = type(name, (noisy, plain), {"__module__": __name__, "__doc__": f"`{plain.__module__}.{name}` with noise."})
    globals()[name] = LAYERS[plain] = joined


def __getattr__(name: str) -> Any:  # noqa: ANN401 -- a class that pickle asks for
    if name not in IMPORTED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    importlib.import_module(IMPORTED[name][0])
    add_imported_layers_()
    return globals()[name]
