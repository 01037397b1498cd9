"""The table of sections, in the order of the page. To add a figure, add a file and a line here."""

from vbdrop.report.blocks import Section
from vbdrop.report.calibration import calibration
from vbdrop.report.layers import layers
from vbdrop.report.noise import dropout_rates, log_alphas
from vbdrop.report.overview import overview
from vbdrop.report.pictures import pictures
from vbdrop.report.reproduce import reproduce
from vbdrop.report.sizes import sizes
from vbdrop.report.speed import speed
from vbdrop.report.training import training

SECTIONS = (
    Section("run", "What was run", overview),
    Section("training", "Error and sparsity per epoch", training),
    Section("sizes", "Error against size", sizes),
    Section("noise", "Which weights carry signal", log_alphas),
    Section("rates", "Learned dropout rates", dropout_rates),
    Section("pictures", "Remaining weights", pictures),
    Section("layers", "Layers before and after", layers),
    Section("speed", "Latency and bytes", speed),
    Section("calibration", "Calibration", calibration),
    Section("again", "Reproduce", reproduce),
)
