"""Warn about what is lost if a converted model from another package is saved with that package's own method."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from vbdrop.layers import Variational

METHOD = "save_pretrained"
"""The method that saves a Hugging Face model; the matching ``from_pretrained`` builds the plain class."""


class WarnedSaving:
    """Replaces the ``save_pretrained`` of a converted model.

    Args:
        module: The model.

    Attributes:
        quiet: Whether the caller saves the rates separately, so that no warning is needed.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.quiet = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 -- as in the method itself
        """Call the class's own method; warn if no ``state_dict`` is given, since the rates cannot be loaded again."""
        is_converted = any(isinstance(module, Variational) for module in self.module.modules())
        if is_converted and not self.quiet and kwargs.get("state_dict") is None:
            warnings.warn(
                "`save_pretrained` saves a converted model, but `from_pretrained` will return a plain one without its "
                "rates and gates. Save it with vbdrop.integrations.transformers.save_pretrained(model, folder) and "
                "load it with restore_, or save the small model that vbdrop.compress returns.",
                stacklevel=2,
            )
        return getattr(type(self.module), METHOD)(self.module, *args, **kwargs)


def warn_when_saved_(model: nn.Module) -> None:
    """Make a converted model warn when its package's own method saves it, in place.

    Example:
        >>> class Pretrained(nn.Linear):
        ...     def save_pretrained(self, folder):
        ...         pass
        >>> model = Pretrained(2, 2)
        >>> warn_when_saved_(model)
        >>> type(model.save_pretrained).__name__
        'WarnedSaving'
    """
    for module in model.modules():
        if callable(getattr(type(module), METHOD, None)) and METHOD not in module.__dict__:
            module.__dict__[METHOD] = WarnedSaving(module)


@contextmanager
def rates_saved_apart(model: nn.Module) -> Iterator[None]:
    """A context in which the caller saves the rates of a model separately, so that its own method does not warn."""
    found = [saving for module in model.modules() if isinstance(saving := module.__dict__.get(METHOD), WarnedSaving)]
    before = [saving.quiet for saving in found]
    for saving in found:
        saving.quiet = True
    try:
        yield
    finally:
        for saving, quiet in zip(found, before, strict=True):
            saving.quiet = quiet


def forget_warnings_(model: nn.Module) -> None:
    """Restore a model's own method."""
    for module in model.modules():
        if isinstance(module.__dict__.get(METHOD), WarnedSaving):
            del module.__dict__[METHOD]
