"""The objective: the evidence lower bound, its KL term, and how that term comes in over time."""

from vbdrop.objective.divergence import kl, noisy_tensors
from vbdrop.objective.elbo import ELBO, Terms
from vbdrop.objective.warmup import Warmup

__all__ = ["ELBO", "Terms", "Warmup", "kl", "noisy_tensors"]
