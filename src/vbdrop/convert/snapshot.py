"""Undo a failed change to a model."""

from torch import nn


class Snapshot:
    """Records the classes and contents of a model's modules, so that later additions can be removed again.

    It records classes and names but copies no tensors: it undoes additions, but not changes to existing tensors.

    Args:
        model: The model, before the change.

    Example:
        >>> model = nn.Linear(2, 2)
        >>> before = Snapshot(model)
        >>> model.scale = nn.Parameter(model.bias.detach().clone())
        >>> before.restore_()
        >>> list(model.state_dict())
        ['weight', 'bias']
    """

    def __init__(self, model: nn.Module) -> None:
        self._modules = [(m, type(m), [set(names) for names in _contents(m)]) for m in model.modules()]

    def restore_(self) -> None:
        """Restore the class of every module and remove what was added."""
        for module, kind, before in self._modules:
            for contents, names in zip(_contents(module), before, strict=True):
                for name in set(contents) - names:
                    del contents[name]
            if type(module) is not kind:
                module.__class__ = kind


def _contents(module: nn.Module) -> list[dict[str, object]]:
    """The dicts in which a module keeps its parameters, its submodules and its attributes."""
    return [module._parameters, module._modules, module.__dict__]  # type: ignore[list-item]
