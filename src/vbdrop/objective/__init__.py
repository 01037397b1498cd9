"""The objective: the evidence lower bound, its KL term, and the schedule of that term."""

from vbdrop.objective.attachment import Handle
from vbdrop.objective.divergence import kl, noisy_tensors
from vbdrop.objective.elbo import ELBO, StepObserver, Terms
from vbdrop.objective.evidence_loss import evidence_loss
from vbdrop.objective.warmup import Warmup

__all__ = ["ELBO", "Handle", "StepObserver", "Terms", "Warmup", "evidence_loss", "kl", "noisy_tensors"]
