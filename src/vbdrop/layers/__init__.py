"""Layers with noisy weights and gates, the modes in which they learn, and the table `LAYERS`."""

from vbdrop.layers.attention import GatedAttention, OpenAttention
from vbdrop.layers.computed_weight import GatedProduct
from vbdrop.layers.conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from vbdrop.layers.counted_norm import CountedNorm
from vbdrop.layers.gate import Gate
from vbdrop.layers.gated_norm import GatedNorm
from vbdrop.layers.imported import add_imported_layers_
from vbdrop.layers.inputs_first import InputsFirstLinear
from vbdrop.layers.layer import NoisyLayer
from vbdrop.layers.linear import Linear
from vbdrop.layers.modes import Filter, Mode, Rates, Units, Weights
from vbdrop.layers.noisy import NoisyTensor
from vbdrop.layers.recurrent import GRU, LSTM, RNN
from vbdrop.layers.shared_gate import SharedGate
from vbdrop.layers.table import LAYERS, register_layer
from vbdrop.layers.variational import Variational

__all__ = [
    "GRU",
    "LAYERS",
    "LSTM",
    "RNN",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CountedNorm",
    "Filter",
    "Gate",
    "GatedAttention",
    "GatedNorm",
    "GatedProduct",
    "InputsFirstLinear",
    "Linear",
    "Mode",
    "NoisyLayer",
    "NoisyTensor",
    "OpenAttention",
    "Rates",
    "SharedGate",
    "Units",
    "Variational",
    "Weights",
    "add_imported_layers_",
    "register_layer",
]
