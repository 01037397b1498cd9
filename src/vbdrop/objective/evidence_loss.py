"""The negative evidence lower bound per example, as a function of a model and a likelihood."""

from numbers import Integral

from torch import Tensor, nn

from vbdrop.objective.divergence import kl_terms


def check_n_train(n_train: object) -> int:
    """The number of training examples as an int.

    Raises:
        ValueError: If it is not an integer of at least 1.
    """
    if isinstance(n_train, bool) or not isinstance(n_train, int | Integral) or n_train < 1:
        raise ValueError(
            f"`n_train` must be the number of training examples, an int >= 1; got {n_train!r}. "
            "The KL belongs to the whole training set, so it is divided by its size, not by the batch's."
        )
    return int(n_train)


def evidence_loss(nll: Tensor, model: nn.Module, *, n_train: int, kl_weight: float = 1.0) -> Tensor:
    """The loss ``nll + kl_weight * kl(model) / n_train``, without the state and the checks of `vbdrop.ELBO`.

    Args:
        nll: The negative log likelihood, averaged over the examples of the batch: one number.
        model: A model converted by `vbdrop.convert_`.
        n_train: The number of training examples, over which the KL is spread.
        kl_weight: A factor on the KL, including any warm-up.

    Returns:
        The loss to minimize.

    Example:
        >>> import torch, vbdrop
        >>> model = nn.Linear(4, 2)
        >>> _ = vbdrop.convert_(model, vbdrop.Weights())
        >>> nll = nn.functional.cross_entropy(model(torch.ones(3, 4)), torch.tensor([0, 1, 0]))
        >>> loss = evidence_loss(nll, model, n_train=1000, kl_weight=0.5)
        >>> torch.isclose(loss, nll + 0.5 * vbdrop.kl(model) / 1000).item()
        True
    """
    return loss_and_kl(nll, model, kl_weight / check_n_train(n_train))[0]


def loss_and_kl(nll: Tensor, model: nn.Module, scale: float | Tensor) -> tuple[Tensor, Tensor]:
    """``nll + scale * kl(model)``, and the KL itself, detached."""
    scaled, divergence = kl_terms(model, scale)
    return nll + scaled, divergence
