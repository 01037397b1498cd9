"""The training loop that all methods share, and the files that a run writes."""

from vbdrop.train.budget import Budget
from vbdrop.train.evaluation import Evaluation, calibration_error, evaluate
from vbdrop.train.files import RecordError
from vbdrop.train.loop import DivergedError, Report, Trained, fit
from vbdrop.train.method import Batch, Family, Method, Step
from vbdrop.train.metrics import Epoch, MetricsLog, read_metrics
from vbdrop.train.order import batch_order
from vbdrop.train.schedules import SCHEDULES, schedule
from vbdrop.train.sparsity import Sparsity, weight_layers

__all__ = [
    "SCHEDULES",
    "Batch",
    "Budget",
    "DivergedError",
    "Epoch",
    "Evaluation",
    "Family",
    "Method",
    "MetricsLog",
    "RecordError",
    "Report",
    "Sparsity",
    "Step",
    "Trained",
    "batch_order",
    "calibration_error",
    "evaluate",
    "fit",
    "read_metrics",
    "schedule",
    "weight_layers",
]
