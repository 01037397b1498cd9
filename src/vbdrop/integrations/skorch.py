"""skorch: estimators for scikit-learn whose networks learn their dropout rates, and the callback behind them."""

import copy
from dataclasses import replace
from typing import Any

from torch.utils.data import default_collate

from vbdrop.convert import convert_
from vbdrop.integrations.extras import imported
from vbdrop.integrations.rate_groups import separate_rates_
from vbdrop.integrations.scalars import scalars
from vbdrop.integrations.session import Session
from vbdrop.layers.modes import Mode
from vbdrop.objective import ELBO, Warmup
from vbdrop.targets import Target

skorch: Any = imported("skorch", "skorch")
callbacks: Any = imported("skorch.callbacks", "skorch")

EXAMPLES = 2
"""The number of examples that a target traces the network with."""

OWN = "vbdrop"
"""The name of the callback in the estimators."""

OBJECTIVE = ("kl_weight", "warmup", "check_every", "target")
"""The parameters of the estimators that the callback gets."""

HISTORY = ("kl", "kl_weight", "dead_share")
"""The `vbdrop.scalars` that become columns of a net's history."""


class VBDropCallback(callbacks.Callback):
    """Adds the KL before every step of a skorch net whose module is converted.

    The KL is spread over the examples of the training split. After every epoch, ``kl``, ``kl_weight`` and
    ``dead_share`` are in the history. `VBDClassifier` and `VBDRegressor` have this callback; use it directly for
    a `NeuralNet` whose module you have converted yourself.

    Args:
        kl_weight: The factor on the KL; see `vbdrop.ELBO`.
        warmup: The warm-up of the KL, in epochs.
        check_every: See `vbdrop.ELBO`.
        target: A size to reach, instead of ``kl_weight`` and ``warmup``. If it lacks a length or example inputs, they
            are taken from the net.

    Example:
        >>> VBDropCallback(kl_weight=0.1).kl_weight
        0.1
    """

    def __init__(
        self,
        kl_weight: float | None = None,
        warmup: Warmup | None = None,
        check_every: int = 100,
        target: Target | None = None,
    ) -> None:
        self.kl_weight, self.warmup, self.check_every, self.target = kl_weight, warmup, check_every, target

    def initialize(self) -> "VBDropCallback":
        """Forget any earlier training."""
        self.session_: Session | None = None
        return self

    @property
    def elbo_(self) -> ELBO:
        """The objective, during training."""
        if self.session_ is None:
            raise AttributeError("`elbo_` is available only during training.")
        return self.session_.elbo

    def objective(self, net: Any, dataset_train: Any) -> dict[str, Any]:  # noqa: ANN401
        """The arguments of the ELBO."""
        target = self.target
        if target is not None and target.example_inputs is None:
            inputs, _ = default_collate([dataset_train[index] for index in range(min(EXAMPLES, len(dataset_train)))])
            target = replace(target, example_inputs=skorch.utils.to_device(inputs, net.device))
        return {
            "n_train": len(dataset_train),
            "kl_weight": self.kl_weight,
            "warmup": self.warmup,
            "check_every": self.check_every,
            "target": target,
        }

    def on_epoch_begin(self, net: Any, dataset_train: Any = None, **kwargs: Any) -> None:  # noqa: ANN401
        """Attach the KL in the first epoch, when the training split is known; pass the epoch to the warm-up."""
        if self.session_ is None:
            if (reduction := getattr(net.criterion_, "reduction", "mean")) != "mean":
                raise ValueError(f"`criterion__reduction` must be 'mean', the loss per example; got {reduction!r}.")
            if self.target is not None and any(getattr(callback, "load_best", False) for _, callback in net.callbacks_):
                raise ValueError(
                    "`load_best` of a callback must be False with a target: the best epoch may be one before the "
                    "network was cut to its size; got True."
                )
            session = Session((), self.objective(net, dataset_train), getattr(net, "rate_lr", None))
            steps = net.max_epochs * len(net.get_iterator(dataset_train, training=True))
            session.prepare_(net.module_, steps=steps)
            found = [getattr(callback, "lr_scheduler_", None) for _, callback in net.callbacks_]
            session.attach(net.optimizer_, schedulers=[one for one in found if one is not None], steps=steps)
            self.session_ = session
        self.elbo_.epoch = len(net.history) - 1

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Add the figures to the history."""
        found = scalars(net.module_, self.elbo_)
        for name in HISTORY:
            net.history.record(name, found[name])

    def on_train_end(self, net: Any, **kwargs: Any) -> None:  # noqa: ANN401
        """Detach the KL, so that the net can be pickled."""
        if self.session_ is not None:
            self.session_.end()
        self.session_ = None


class _LearnedRates:
    """What both estimators share: a converted module, parameter groups for its rates, and the callback."""

    module_: Any
    optimizer_: Any

    def __init__(
        self,
        module: Any,  # noqa: ANN401
        *args: Any,  # noqa: ANN401
        modes: Mode | tuple[Mode, ...],
        kl_weight: float | None = None,
        warmup: Warmup | None = None,
        target: Target | None = None,
        rate_lr: float | None = None,
        check_every: int = 100,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(module, *args, **kwargs)  # type: ignore[call-arg]  # the net is the next base class
        self.modes, self.kl_weight, self.warmup = modes, kl_weight, warmup
        self.rate_lr, self.check_every, self.target = rate_lr, check_every, target

    @property
    def _default_callbacks(self) -> list[tuple[str, Any]]:
        own = (OWN, VBDropCallback(**{name: getattr(self, name) for name in OBJECTIVE}))
        *others, last = super()._default_callbacks  # type: ignore[misc]  # the last one prints
        return [*others, own, last]

    def set_params(self, **kwargs: Any) -> Any:  # noqa: ANN401
        """Set parameters; those of the objective also apply when training is resumed."""
        super().set_params(**kwargs)  # type: ignore[misc]
        own = dict(getattr(self, "callbacks_", ())).get(OWN)
        if own is not None:
            own.set_params(**{name: kwargs[name] for name in OBJECTIVE if name in kwargs})
        return self

    def initialize_module(self) -> Any:  # noqa: ANN401
        """Build the module, or copy the given instance, and convert it."""
        super().initialize_module()  # type: ignore[misc]
        if self.module_ is self.module:  # type: ignore[attr-defined]
            self.module_ = copy.deepcopy(self.module_)
        convert_(self.module_, *(self.modes if isinstance(self.modes, tuple | list) else (self.modes,)))
        return self

    def initialize_optimizer(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Build the optimizer, with the rates in a group without weight decay."""
        super().initialize_optimizer(*args, **kwargs)  # type: ignore[misc]
        separate_rates_(self.module_, self.optimizer_, rate_lr=self.rate_lr)
        return self


class VBDClassifier(_LearnedRates, skorch.NeuralNetClassifier):
    """A classifier for scikit-learn that learns its dropout rates: `skorch.NeuralNetClassifier`, converted.

    Args:
        module: The network, a class or an instance; an instance is copied, not changed.
        args: Further arguments of `skorch.NeuralNetClassifier`, such as ``criterion``, ``max_epochs`` and ``lr``.
        modes: How the network is converted, such as ``vbdrop.Weights()``; one mode or a tuple of them.
        kl_weight: The factor on the KL; see `vbdrop.ELBO`.
        warmup: The warm-up of the KL, in epochs.
        target: A size to reach within ``max_epochs``, such as ``vbdrop.Target(weights=10)``, instead of ``kl_weight``
            and ``warmup``.
        rate_lr: The learning rate of the rates; None for that of the weights.
        check_every: See `vbdrop.ELBO`.
        kwargs: The same by name.

    Example:
        >>> import torch, vbdrop
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 2))
        >>> net = VBDClassifier(
        ...     network, criterion=torch.nn.CrossEntropyLoss, modes=vbdrop.Weights(), max_epochs=2, verbose=0
        ... )
        >>> x, y = torch.randn(60, 4), torch.arange(60) % 2
        >>> net.fit(x, y).predict(x).shape
        (60,)
        >>> "dead_share" in net.history[-1]
        True
    """


class VBDRegressor(_LearnedRates, skorch.NeuralNetRegressor):
    """A regressor for scikit-learn that learns its dropout rates: `skorch.NeuralNetRegressor`, converted.

    The default criterion, the mean squared error, is the negative log likelihood of a normal distribution with a
    variance of 1/2, up to a constant. If the noise of the targets differs, scale them, or set ``kl_weight``.

    The arguments are those of `VBDClassifier`; ``args`` and ``kwargs`` go to `skorch.NeuralNetRegressor`.

    Example:
        >>> import torch, vbdrop
        >>> net = VBDRegressor(torch.nn.Linear(4, 1), modes=vbdrop.Rates(), max_epochs=2, verbose=0)
        >>> x = torch.randn(60, 4)
        >>> net.fit(x, x[:, :1]).predict(x).shape
        (60, 1)
    """
