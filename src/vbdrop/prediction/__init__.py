"""Predictions with their uncertainty."""

from vbdrop.prediction.eval_noise import sampling
from vbdrop.prediction.predictions import Prediction, predict

__all__ = ["Prediction", "predict", "sampling"]
