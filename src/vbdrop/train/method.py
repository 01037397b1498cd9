"""The interface of a method: everything that the training loop calls."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from torch import Tensor, nn

Family: TypeAlias = Literal["regulariser", "weights", "structured"]
"""The purpose of a method: lower error, fewer weights, or fewer units."""


_ABSENT = "of a run whose record does not have it"


def option(default: Any, *, absent: Any = MISSING) -> Any:  # noqa: ANN401 -- the field's own annotation says what it is
    """A hyper-parameter that was added to a method after runs had been recorded.

    A run is named after the settings that identify it. So that recorded runs keep their names, this one is left out if
    it has the value that all earlier runs had.

    Args:
        default: The default value.
        absent: The value of all earlier runs; by default the default.

    Example:
        >>> @dataclass(frozen=True)
        ... class Plain(Method):
        ...     rate: float = 0.5
        ...     momentum: float = option(0.9, absent=0.0)
        ...
        ...     def loss(self, model, batch, step):
        ...         return nn.functional.cross_entropy(model(batch.inputs), batch.targets)
        >>> Plain().identity(), Plain(momentum=0.0).identity()
        ({'rate': 0.5, 'momentum': 0.9}, {'rate': 0.5})
        >>> Plain.absent()
        {'momentum': 0.0}
    """
    return field(default=default, metadata={_ABSENT: default if absent is MISSING else absent})


class Batch(NamedTuple):
    """A batch of examples."""

    inputs: Tensor
    targets: Tensor


@dataclass(frozen=True)
class Step:
    """The position in a run.

    Attributes:
        index: The number of steps done before this one.
        steps: The total number of steps.
        epoch: The epochs done, including the fraction of the current one.
        epochs: The total number of epochs.
        n_train: The number of training examples.
    """

    index: int
    steps: int
    epoch: float
    epochs: int
    n_train: int

    @property
    def progress(self) -> float:
        """The share of the run that is done, in [0, 1)."""
        return self.index / self.steps


@dataclass(frozen=True)
class Method(ABC):
    """A training method: a frozen set of hyper-parameters, and what it does with a model.

    All state between two steps is in the model's parameters and buffers, so that a checkpoint of model and optimizer is
    a checkpoint of the run. The epochs are the budget of a run: a method that starts from a trained network trains it
    within them.

    Attributes:
        name: The name on the command line.
        title: The name in a table.
        paper: Authors, year and venue.
        family: Its purpose.
        version: Incremented when a change alters the figures.
        knobs: Hyper-parameter -> the values tried on validation data.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    family: ClassVar[Family]
    version: ClassVar[int] = 1
    knobs: ClassVar[Mapping[str, tuple[Any, ...]]] = {}

    @property
    def shrinks(self) -> bool:
        """Whether dead units stay dead, so that they can be removed during training."""
        return False

    def settings(self) -> dict[str, Any]:
        """All hyper-parameters."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def absent(cls) -> dict[str, Any]:
        """The hyper-parameters that a record may lack, with the value that its run had; see `option`."""
        return {each.name: each.metadata[_ABSENT] for each in fields(cls) if _ABSENT in each.metadata}

    def identity(self) -> dict[str, Any]:
        """The hyper-parameters that identify a run: all except each `option` with the value of earlier runs."""
        return self.identifying(self.settings())

    @classmethod
    def identifying(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The subset of these hyper-parameters that identifies a run."""
        absent = cls.absent()
        return {name: value for name, value in settings.items() if name not in absent or value != absent[name]}

    def build(self, model: nn.Module) -> nn.Module:
        """Prepare a freshly initialised plain model; return the model to train."""
        return model

    def groups(self, model: nn.Module, lr: float) -> list[dict[str, Any]]:
        """The parameter groups of the optimizer; their ``lr`` is scaled by the protocol's schedule."""
        return [{"params": [p for p in model.parameters() if p.requires_grad], "lr": lr}]

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The loss of a batch; the model is in training mode."""

    def after_step(self, model: nn.Module, step: Step) -> None:  # noqa: B027 -- most methods do nothing here
        """Run after the optimizer's step: masks, projections, growing. The step's gradients are still available."""

    def finish(self, model: nn.Module) -> nn.Module:
        """The final plain network, in which dead weights are exact zeros."""
        return model

    def in_training(self, model: nn.Module) -> nn.Module:
        """The plain network during training: its dead units are those that may be removed before the end."""
        return self.finish(model)
