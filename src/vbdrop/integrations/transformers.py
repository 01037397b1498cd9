"""Hugging Face transformers: a callback and a mixin for `Trainer`, and saving of converted models."""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from vbdrop.convert.description import convert_as_described_, describe_conversion
from vbdrop.convert.pretrained import rates_saved_apart
from vbdrop.convert.snapshot import Snapshot
from vbdrop.integrations.extras import imported
from vbdrop.integrations.scalars import scalars
from vbdrop.integrations.session import Session
from vbdrop.layers import Variational
from vbdrop.layers.modes import Mode
from vbdrop.objective import ELBO
from vbdrop.objective.decay import decayed_rates, rate_parameters

hf: Any = imported("transformers", "transformers")
imported("accelerate", "transformers")

RATES_FILE = "vbdrop.safetensors"
"""The file with the rates of a converted model, beside those of ``save_pretrained``."""

CONVERSION_FILE = "vbdrop.json"
"""The file that says how the model was converted."""

STATE_FILE = "vbdrop_state.json"
"""The file with the state of the objective and of its target, in a checkpoint."""


class VBDropCallback(hf.TrainerCallback):
    """Trains the model of a `transformers.Trainer` as a Bayesian model.

    The model is converted when the trainer is created. The trainer's loss is the negative log likelihood; the gradient
    of the KL is added right before every step of the optimizer: once per step with any ``gradient_accumulation_steps``,
    after the gradients of all processes have been averaged, and after clipping, which affects only the gradients of the
    likelihood. Every checkpoint also gets what `restore_` needs. With a target, ``load_best_model_at_end`` chooses
    among the checkpoints that have its size.

    Use it together with `VBDropTrainerMixin` (or `VBDropTrainer`), which excludes the rates from weight decay and logs
    them.

    Args:
        modes: How the model is converted; none if it is already converted.
        n_train: The number of items in the training set over which the trainer's loss is a mean: examples for sequence
            classification, tokens with a label for a language model.
        rate_lr: The learning rate of the rates; None for that of the weights or, with a target, for one at which the
            log variances can go from alive to dead within the press stage.
        example_inputs: Inputs of the model, such as a dict with ``input_ids``. With them, `vbdrop.Units` gets one gate
            per head and per channel group; a target needs them.
        objective: Further arguments of `vbdrop.ELBO`, such as ``kl_weight`` and ``warmup``, or ``target``, whose length
            is that of the run.

    Example:
        >>> import vbdrop
        >>> callback = VBDropCallback(vbdrop.Units(), n_train=25_000, kl_weight=0.1, warmup=vbdrop.Warmup(ramp=1))
    """

    def __init__(
        self,
        *modes: Mode,
        n_train: int,
        rate_lr: float | None = None,
        example_inputs: Any = None,  # noqa: ANN401 -- as convert_ takes them
        **objective: Any,  # noqa: ANN401 -- as the ELBO takes them
    ) -> None:
        self._session = Session(modes, {"n_train": n_train, **objective}, rate_lr, example_inputs)
        self._resumed_from: Path | None = None
        self._was_cut = False
        self._saving = ExitStack()

    @property
    def elbo(self) -> ELBO:
        """The objective, once the trainer has been created."""
        return self._session.elbo

    @property
    def is_prepared(self) -> bool:
        """Whether the model has been converted and `elbo` is available."""
        return self._session.is_prepared

    def separate_rates_(self, optimizer: Optimizer, steps: float | None = None) -> None:
        """Move the rates out of groups with weight decay.

        Args:
            optimizer: The trainer's optimizer.
            steps: The number of optimizer steps of the run, if known.
        """
        self._session.separate_rates_(optimizer, steps)

    # hooks that the Trainer calls

    def on_init_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:  # noqa: ANN401
        """Convert the model."""
        self.prepare_(args, model)

    def prepare_(self, args: Any, model: Any) -> None:  # noqa: ANN401
        """Convert a model, unless it is already converted; `VBDropTrainerMixin` calls this for a ``model_init``."""
        if args.max_steps > 0:
            self._session.prepare_(model, steps=args.max_steps)
        else:
            self._session.prepare_(model, epochs=float(args.num_train_epochs))

    def resume_from(self, checkpoint: Path) -> None:
        """Set the checkpoint from which the next training resumes; `VBDropTrainerMixin` calls this."""
        self._resumed_from = checkpoint

    def on_train_begin(
        self,
        args: Any,  # noqa: ANN401
        state: Any,  # noqa: ANN401
        control: Any,  # noqa: ANN401
        model: Any = None,  # noqa: ANN401
        optimizer: Any = None,  # noqa: ANN401
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Attach the KL to the optimizer."""
        self.prepare_(args, model)
        if state.max_steps > 0:
            self._session.set_steps(state.max_steps)
        self._load_state(state.global_step)
        inner = getattr(optimizer, "optimizer", optimizer)  # unwrap accelerate's optimizer
        self._check_groups(inner)
        self._session.attach(inner)
        self._saving.enter_context(rates_saved_apart(self.elbo.model))  # `on_save` saves them

    def _load_state(self, step: int) -> None:
        """Resume a target from a checkpoint."""
        checkpoint, self._resumed_from = self._resumed_from, None
        if step == 0 or not self.elbo.observers:
            return
        if checkpoint is None:
            raise ValueError(
                "a target can only resume from a checkpoint in a VBDropTrainer, or in class MyTrainer("
                "VBDropTrainerMixin, Trainer), which knows where the checkpoint is."
            )
        self.elbo.load_state_dict(json.loads((checkpoint / STATE_FILE).read_text()))

    def _check_groups(self, optimizer: Optimizer) -> None:
        """Check that the rates are trained, and without weight decay; it is too late to change that here."""
        model = self.elbo.model
        known = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        rates = rate_parameters(model)
        missing = [name for key, name in rates.items() if key not in known]
        if missing or decayed_rates(model, optimizer):
            what = f"lacks the rates, such as {missing[0]!r}" if missing else "decays the rates"
            raise ValueError(
                f"the optimizer of the Trainer {what}. Train with VBDropTrainer, or with class MyTrainer("
                "VBDropTrainerMixin, Trainer); or build the optimizer from vbdrop.param_groups(model)."
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Pass the epoch, with its fraction, to the warm-up."""
        self.elbo.epoch = float(state.epoch or 0.0)
        self._was_cut = self._session.is_cut

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Once the model has the size of its target, forget the best larger one."""
        if self._session.is_cut and not self._was_cut:
            state.best_metric = state.best_global_step = state.best_model_checkpoint = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Write what `restore_` needs into the checkpoint."""
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero and folder.is_dir():
            self.save_state(folder)

    def save_state(self, folder: Path) -> None:
        """Write what `restore_` needs, and the state of the objective, into a folder that has the model."""
        save_rates(self.elbo.model, folder)
        (folder / STATE_FILE).write_text(json.dumps(self.elbo.state_dict()) + "\n")

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Detach the KL."""
        self._session.end()
        self.detach()

    def detach(self) -> None:
        """Restore the optimizer, and the model's own ``save_pretrained``, to their state before training."""
        self._session.detach()
        self._saving.close()


class VBDropTrainerMixin:
    """A mixin for your own `Trainer`, before it in the list of bases: rates get no weight decay, and are logged.

    With ``gradient_accumulation_steps``, the gradient of the loss is that of a mean over all accumulated batches, even
    for models whose losses the trainer itself would add up.

    Example:
        >>> class MyTrainer(VBDropTrainerMixin, hf.Trainer):
        ...     pass
    """

    args: Any
    callback_handler: Any
    model: Any
    model_init: Any
    optimizer: Any
    train_dataset: Any
    model_accepts_loss_kwargs: bool
    compute_loss: Any
    _prepare_inputs: Any
    _knows_loss = False

    @property
    def vbdrop(self) -> VBDropCallback:
        """The `VBDropCallback` among the callbacks.

        Raises:
            ValueError: If there is none.
        """
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, VBDropCallback):
                return callback
        raise ValueError("`callbacks` of the Trainer must have a VBDropCallback; there is none.")

    def train(self, resume_from_checkpoint: Any = None, **kwargs: Any) -> Any:  # noqa: ANN401
        """Train as the trainer does; a target also resumes from the checkpoint."""
        checkpoint = resume_from_checkpoint
        if checkpoint is True:
            checkpoint = hf.trainer_utils.get_last_checkpoint(self.args.output_dir)
        if checkpoint:
            self.vbdrop.resume_from(Path(checkpoint))
        try:
            return super().train(resume_from_checkpoint, **kwargs)  # type: ignore[misc]
        finally:
            self.vbdrop.detach()

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Save the model as the trainer does, and its rates beside it, for `restore_`."""
        model = self.vbdrop.elbo.model
        with rates_saved_apart(model):
            super().save_model(output_dir, *args, **kwargs)  # type: ignore[misc]
        folder = Path(output_dir or self.args.output_dir)
        if self.args.should_save and folder.is_dir():
            self.vbdrop.save_state(folder)

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The trainer's own optimizer, with the rates in groups without weight decay."""
        if self.model_init is not None:  # training has begun with a new model
            self.vbdrop.prepare_(self.args, self.model)
        optimizer = super().create_optimizer(*args, **kwargs)  # type: ignore[misc]
        self.vbdrop.separate_rates_(optimizer, self._steps())
        return optimizer

    def _steps(self) -> float | None:
        """The number of optimizer steps of the run; None if the training set has no length."""
        args, examples = self.args, getattr(self.train_dataset, "__len__", None)
        if args.max_steps > 0 or examples is None:
            return float(args.max_steps) if args.max_steps > 0 else None
        per_step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        return float(args.num_train_epochs * math.ceil(examples() / per_step))

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None, **kwargs: Any) -> Any:  # noqa: ANN401
        """Train on one batch as the trainer does; before the first one, find out what its loss is a mean over."""
        if self.model_accepts_loss_kwargs and num_items_in_batch is not None and not self._knows_loss:
            self._see_loss(model, self._prepare_inputs(inputs), num_items_in_batch)
        return super().training_step(model, inputs, num_items_in_batch, **kwargs)  # type: ignore[misc]

    @torch.no_grad()
    def _see_loss(self, model: Any, inputs: Any, num_items_in_batch: Any) -> None:  # noqa: ANN401
        """Let the trainer average over accumulated batches and processes, unless the loss is divided by all items.

        The trainer assumes that every model whose forward has ``**kwargs`` divides its loss. For one that does not,
        such as BERT for classification, it would add up gradients instead of averaging them, and the KL would be too
        weak by a factor of the number of batches.
        """
        model.eval()
        one, half = (
            self.compute_loss(model, dict(inputs), num_items_in_batch=items)
            for items in (num_items_in_batch, 2 * num_items_in_batch)
        )
        self._knows_loss = bool(one)  # a loss of zero does not show it
        if self._knows_loss and torch.isclose(one, half, rtol=1e-4, atol=0.0):
            self.model_accepts_loss_kwargs = False

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Log what the trainer logs and, along with the loss, `vbdrop.scalars`."""
        if "loss" in logs:
            logs = {**logs, **scalars(self.vbdrop.elbo.model, self.vbdrop.elbo, prefix="vbdrop/")}
        super().log(logs, *args, **kwargs)  # type: ignore[misc]


class VBDropTrainer(VBDropTrainerMixin, hf.Trainer):
    """`transformers.Trainer` with `VBDropTrainerMixin`; pass a `VBDropCallback` among its ``callbacks``.

    Example:
        >>> issubclass(VBDropTrainer, hf.Trainer)
        True
    """


def save_pretrained(model: Any, folder: str | Path) -> None:  # noqa: ANN401 -- a PreTrainedModel
    """Save a converted model, to be read by ``from_pretrained`` and `restore_`.

    The files of ``save_pretrained`` hold the tensors of the plain model. The rates are saved beside them, in
    ``vbdrop.safetensors`` and ``vbdrop.json``.

    Args:
        model: A converted `transformers` model.
        folder: Where to write.
    """
    own = _variational_tensors(model)
    model.save_pretrained(folder, state_dict={n: t for n, t in model.state_dict().items() if n not in own})
    save_rates(model, folder)


def save_rates(model: nn.Module, folder: str | Path) -> None:
    """Write the rates of a model, and how it was converted, to a folder that has the rest of it.

    Args:
        model: A converted model.
        folder: An existing folder.
    """
    folder = Path(folder)
    save_file({name: tensor.contiguous() for name, tensor in _variational_tensors(model).items()}, folder / RATES_FILE)
    (folder / CONVERSION_FILE).write_text(json.dumps(describe_conversion(model), indent=1) + "\n")


def restore_(model: nn.Module, folder: str | Path, example_inputs: Any = None) -> nn.Module:  # noqa: ANN401
    """Turn a model from ``from_pretrained(folder)`` into the converted model that was saved there, in place.

    Args:
        model: The plain model.
        folder: A folder written by `save_pretrained`, or a checkpoint of a trainer with a `VBDropCallback`.
        example_inputs: Inputs that the model accepts, if it was converted with them, so that its layers share gates.

    Returns:
        The same model.

    Raises:
        FileNotFoundError: If the folder has no rates.
        ValueError: If the rates do not fit the model, which is then left unchanged.
    """
    folder = Path(folder)
    for name in (CONVERSION_FILE, RATES_FILE):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"`folder` must have a converted model, with {name}; {str(folder)!r} has none.")
    tensors = load_file(folder / RATES_FILE)
    before = Snapshot(model)
    try:
        convert_as_described_(model, json.loads((folder / CONVERSION_FILE).read_text()), example_inputs)
        _check_fits(model, tensors)
    except BaseException:
        before.restore_()
        raise
    for name in tensors:
        path, _, own = name.rpartition(".")
        if own == "kl_factor":
            model.get_submodule(path).register_buffer(own, tensors[name])
    model.load_state_dict({**model.state_dict(), **tensors})
    return model


def _check_fits(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    own = _variational_tensors(model)
    wrong = [name for name in own if name not in tensors or tensors[name].shape != own[name].shape]
    if wrong:
        raise ValueError(f"`folder` must have the rates of this model; those of {wrong[0]!r} do not fit it.")


def _variational_tensors(model: nn.Module) -> dict[str, Tensor]:
    """What the conversion, or training after it, has added to the ``state_dict`` of a model."""
    added = set(rate_parameters(model).values())
    for path, module in model.named_modules():
        if isinstance(module, Variational):
            added |= {f"{path}.{name}".lstrip(".") for name in ("removed", "kl_factor") if name in module._buffers}
    return {name: tensor for name, tensor in model.state_dict().items() if name in added}
