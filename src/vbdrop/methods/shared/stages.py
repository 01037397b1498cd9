"""The stages of a run of variational pruning: the plain network, the penalty, and the survivors."""

from abc import abstractmethod

from torch import Tensor, nn

from vbdrop.convert import deterministic_, freeze_dead_
from vbdrop.methods.shared.checks import check_share
from vbdrop.methods.shared.losses import cross_entropy
from vbdrop.methods.shared.pretraining import start_variances_, train_plainly_, without_variances_
from vbdrop.methods.shared.refining import freeze_variances_
from vbdrop.methods.shared.run_parts import started, starts_next
from vbdrop.train.method import Batch, Method, Step


class Staged(Method):
    """A method with learned noise whose run may have a first and a last stage without the penalty. Abstract.

    A subclass defines both shares as fields. If both are 0, the whole run has the penalty.

    Attributes:
        pretrain: The first share of the run, in which the plain network trains, without noise. Then the variances
            start, as for a network that is already trained.
        refine: The last share of the run, in which the survivors train with the noise that they have (see
            `vbdrop.methods.shared.refining`), and the dead stay dead.
    """

    pretrain: float
    refine: float

    def __post_init__(self) -> None:
        check_share(self, "pretrain", "refine", zero=True)
        if self.pretrain + self.refine >= 1:
            raise ValueError(
                f"`pretrain` and `refine` of {type(self).__name__} must leave a share of the run between them; "
                f"got pretrain={self.pretrain}, refine={self.refine}."
            )

    @property
    def shrinks(self) -> bool:
        """The penalty keeps dead weights and units dead."""
        return True

    @property
    def final_threshold(self) -> float | None:
        """The ``log_alpha`` at or above which weights are dead from the last stage on; None for that of training."""
        return None

    def in_training(self, model: nn.Module) -> nn.Module:
        """The mean network, with what is dead in training set to zero, in place."""
        return deterministic_(model)

    @abstractmethod
    def convert(self, model: nn.Module) -> None:
        """Convert a freshly initialised plain model, in place."""

    @abstractmethod
    def penalised_loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The loss with the penalty, which is held and then rises after ``pretrain``."""

    def likelihood(self, model: nn.Module, batch: Batch) -> Tensor:
        """The loss of the survivors in the last stage: the cross-entropy."""
        return cross_entropy(model, batch)

    def cut_(self, model: nn.Module, step: Step) -> None:
        """Permanently remove what is dead at the start of the last stage."""
        freeze_dead_(model, self.final_threshold)

    def build(self, model: nn.Module) -> nn.Module:
        """Convert the model; its variances wait for the end of the first stage."""
        self.convert(model)
        if self.pretrain:
            without_variances_(model)
        return model

    def loss(self, model: nn.Module, batch: Batch, step: Step) -> Tensor:
        """The cross-entropy, under one draw of the noise after the first stage, and the penalty before the last."""
        plain = self.pretrain > 0 and not started(self.pretrain, step)
        refined = self.refine > 0 and started(1 - self.refine, step)
        if self.pretrain:
            train_plainly_(model, plain)
        if refined:
            freeze_variances_(model)
        if plain:
            return cross_entropy(model, batch)
        return self.likelihood(model, batch) if refined else self.penalised_loss(model, batch, step)

    def after_step(self, model: nn.Module, step: Step) -> None:
        """Switch to the next stage when it starts; what is dead at the start of the last one stays dead."""
        if self.pretrain and starts_next(self.pretrain, step):
            start_variances_(model)
        if self.refine and starts_next(1 - self.refine, step):
            self.cut_(model, step)
