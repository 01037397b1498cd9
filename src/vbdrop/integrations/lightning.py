"""PyTorch Lightning: a callback that converts, trains, shrinks, logs, saves and compresses a `LightningModule`."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from vbdrop.compression import Compressed, compress
from vbdrop.integrations.extras import imported
from vbdrop.integrations.scalars import scalars
from vbdrop.integrations.session import Session, restore_shape_
from vbdrop.layers.modes import Mode
from vbdrop.objective import ELBO

pl: Any = imported("lightning.pytorch", "lightning")

STATE_KEY = "VBDropCallback"
"""The key of the callback's state in a checkpoint."""


class VBDropCallback(pl.Callback):
    """Trains a `LightningModule` as a Bayesian model, without any change to its code.

    The module is converted before ``configure_optimizers`` is called. Its ``training_step`` returns only the negative
    log likelihood, as a mean over the batch; the gradient of the KL is added right before every step of the optimizer,
    also with ``accumulate_grad_batches``. ``gradient_clip_val`` clips only the gradients of the likelihood. Rates are
    moved out of parameter groups with weight decay. Once per epoch, `vbdrop.scalars` are logged.

    A checkpoint has everything that is needed to resume, even if the model had already been made smaller. With a
    target, the ``best_model_path`` of a `ModelCheckpoint` is that of a model with the target's size.

    Args:
        modes: How the model is converted, such as `vbdrop.Units`; none if it is already converted.
        n_train: The number of training examples.
        submodule: The name of the part of the module that is converted; the whole module by default.
        rate_lr: The learning rate of the rates; None for that of the weights or, with a target, for one at which the
            log variances can go from alive to dead within the press stage.
        shrink_every: The number of epochs after which dead units are removed from the model; None for never.
        example_inputs: Inputs that the (sub)module accepts, for ``shrink_every``, ``compress_at_end`` and a target.
            With a target, `vbdrop.Units` gets one gate per channel group.
        compress_at_end: Whether the trained model is compressed, with BatchNorm statistics recomputed from the training
            data; see `compressed`.
        log: Whether scalars are logged.
        objective: Further arguments of `vbdrop.ELBO`, such as ``kl_weight`` and ``warmup``, or ``target``, whose length
            is the trainer's ``max_epochs`` or ``max_steps``, whichever ends first.

    Attributes:
        compressed: The result of `vbdrop.compress`, after training with ``compress_at_end``.

    Example:
        >>> import vbdrop
        >>> callback = VBDropCallback(vbdrop.Units(), n_train=60_000, kl_weight=0.1, warmup=vbdrop.Warmup(ramp=5))
        >>> trainer = pl.Trainer(max_epochs=10, callbacks=[callback], logger=False, enable_checkpointing=False)
    """

    def __init__(
        self,
        *modes: Mode,
        n_train: int,
        submodule: str = "",
        rate_lr: float | None = None,
        shrink_every: int | None = None,
        example_inputs: Any = None,  # noqa: ANN401 -- as compress takes them
        compress_at_end: bool = False,
        log: bool = True,
        **objective: Any,  # noqa: ANN401 -- as the ELBO takes them
    ) -> None:
        super().__init__()
        if shrink_every is not None and (type(shrink_every) is not int or shrink_every < 1):
            raise ValueError(f"`shrink_every` must be a number of epochs, an int >= 1, or None; got {shrink_every!r}.")
        if example_inputs is None and (shrink_every is not None or compress_at_end):
            raise ValueError("`example_inputs` must be inputs of the model, to shrink or to compress it; got None.")
        self._session = Session(
            modes, {"n_train": n_train, **objective}, rate_lr, example_inputs if "target" in objective else None
        )
        self._submodule, self._log = submodule, log
        self._shrink_every, self._example_inputs, self._compress_at_end = shrink_every, example_inputs, compress_at_end
        self._round_to: int = getattr(objective.get("target"), "round_to", 1)
        self._nll_sum, self._nll_count = 0.0, 0
        self._was_cut = False
        self.compressed: Compressed | None = None

    @property
    def elbo(self) -> ELBO:
        """The objective, once training has started."""
        return self._session.elbo

    @property
    def state_key(self) -> str:
        """The key of the state; the same for every subclass, so that `restore_` finds it."""
        return STATE_KEY

    # hooks that Lightning calls

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401 -- Lightning's own types
        """Convert the module."""
        if self._shrink_every is not None and trainer.world_size > 1:
            raise ValueError(
                "`shrink_every` must be None with several processes: the wrapped model cannot change its shapes in "
                f"training; got {self._shrink_every!r}. Use compress_at_end, or shrink in your own loop."
            )
        epochs = trainer.max_epochs if trainer.max_epochs and trainer.max_epochs > 0 else None
        steps = trainer.max_steps if trainer.max_steps > 0 and epochs is None else None
        self._session.prepare_(pl_module.get_submodule(self._submodule), steps=steps, epochs=epochs)
        own = pl_module.on_load_checkpoint

        def reshape_and_load(checkpoint: dict[str, Any]) -> None:  # Lightning calls callbacks only after loading
            states = checkpoint.get("callbacks", {})
            if self.state_key in states:
                self._session.reshape_(states[self.state_key])
            own(checkpoint)

        pl_module.on_load_checkpoint = reshape_and_load

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        """Restore the module's own hook."""
        pl_module.__dict__.pop("on_load_checkpoint", None)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Attach the KL to the optimizers, which now exist; their state is restored after this."""
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        steps = trainer.estimated_stepping_batches
        steps = int(steps) if 0 < steps < math.inf else None
        if steps is not None and (steps == trainer.max_steps or trainer.max_epochs == 1):
            self._session.set_steps(steps)
        self._session.attach(*trainer.optimizers, schedulers=schedulers, steps=steps)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Pass the epoch to the warm-up."""
        self.elbo.epoch = trainer.current_epoch
        self._nll_sum, self._nll_count = 0.0, 0

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        """Record whether the model has already been cut to its target."""
        self._was_cut = self._session.is_cut

    def on_train_batch_end(
        self,
        trainer: Any,  # noqa: ANN401
        pl_module: Any,  # noqa: ANN401
        outputs: Any,  # noqa: ANN401
        batch: Any,  # noqa: ANN401
        batch_idx: int,
    ) -> None:
        """Add up the negative log likelihood for the log; once a target is reached, forget the best larger model."""
        if self._session.is_cut and not self._was_cut:
            _forget_best(trainer)
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if loss is not None:
            self._nll_sum = self._nll_sum + loss.detach() * trainer.accumulate_grad_batches
            self._nll_count += 1

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Log, and shrink the model if that is due."""
        if self._log:
            found = scalars(self.elbo.model, self.elbo, prefix="vbdrop/")
            if self._nll_count:
                found["vbdrop/nll"] = float(self._nll_sum) / self._nll_count
            pl_module.log_dict(found, rank_zero_only=True)
        if self._shrink_every is not None and (trainer.current_epoch + 1) % self._shrink_every == 0:
            if len(trainer.optimizers) > 1:
                raise ValueError(f"`shrink_every` must be None with {len(trainer.optimizers)} optimizers.")
            self._session.shrink_(self._inputs(pl_module), trainer.optimizers[0])

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Detach the KL, and compress the model if requested."""
        self._session.end()
        if self._compress_at_end:
            batches = _moved(trainer.train_dataloader, pl_module)
            inputs = self._inputs(pl_module)
            self.compressed = compress(self.elbo.model, inputs, recalibrate=batches, round_to=self._round_to)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401
        """Detach the KL and restore the module's own hook, since Lightning does not call `teardown` in this case."""
        self._session.detach()
        self.teardown(trainer, pl_module, "fit")

    def _inputs(self, pl_module: Any) -> Any:  # noqa: ANN401
        return pl_module.transfer_batch_to_device(self._example_inputs, pl_module.device, 0)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning puts into a checkpoint for this callback."""
        return self._session.state_dict() if self._session.is_prepared else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        if state_dict:
            self._session.load_state_dict(state_dict)


def _forget_best(trainer: Any) -> None:  # noqa: ANN401
    """Make the `ModelCheckpoint` callbacks choose only among later models."""
    for callback in trainer.checkpoint_callbacks:
        if getattr(callback, "monitor", None) is not None:
            callback.best_k_models, callback.best_model_score = {}, None
            callback.best_model_path = callback.kth_best_model_path = ""


def _moved(loader: Any, pl_module: Any) -> Iterator[Any]:  # noqa: ANN401
    """The batches of a loader on the device of a module."""
    for batch in loader:
        yield pl_module.transfer_batch_to_device(batch, pl_module.device, 0)


def restore_(
    pl_module: nn.Module,
    checkpoint: Mapping[str, Any],
    *,
    submodule: str = "",
    example_inputs: Any = None,  # noqa: ANN401 -- as convert_ takes them
) -> nn.Module:
    """Give a newly built, plain `LightningModule` the conversion, shapes and tensors of a checkpoint.

    Args:
        pl_module: The module as it is built, before any conversion.
        checkpoint: The result of `torch.load` for a file written by a `Trainer` with a `VBDropCallback`.
        submodule: The name of the part that was converted, as passed to the callback.
        example_inputs: Inputs that this part accepts, if it was converted with them.

    Returns:
        The same module.

    Raises:
        ValueError: If the checkpoint has no state of a `VBDropCallback`.
    """
    state = checkpoint.get("callbacks", {}).get(STATE_KEY)
    if not state:
        raise ValueError("`checkpoint` must have been written with a VBDropCallback; it has no state of one.")
    restore_shape_(pl_module.get_submodule(submodule), state, example_inputs)
    pl_module.load_state_dict(checkpoint["state_dict"])
    return pl_module
