"""Pure formulas on tensors: sampling by local reparameterization, gates, masks, bounds, and the KL."""

from vbdrop.functional.bounds import upper_bounded
from vbdrop.functional.gates import apply_gate, noisy_gates_reference
from vbdrop.functional.kl import kl_and_gradients_reference, kl_sum_reference
from vbdrop.functional.local_reparameterization import (
    noisy_product_reference,
    noisy_rates_reference,
    noisy_weights_reference,
    perturbed_reference,
    posterior_reference,
)
from vbdrop.functional.masks import alive, alive_given, masked
from vbdrop.functional.memory_order import standard_normal_like, strided_as
from vbdrop.functional.products import Convolution, InputsFirstProduct, MatrixProduct, Product

__all__ = [
    "Convolution",
    "InputsFirstProduct",
    "MatrixProduct",
    "Product",
    "alive",
    "alive_given",
    "apply_gate",
    "kl_and_gradients_reference",
    "kl_sum_reference",
    "masked",
    "noisy_gates_reference",
    "noisy_product_reference",
    "noisy_rates_reference",
    "noisy_weights_reference",
    "perturbed_reference",
    "posterior_reference",
    "standard_normal_like",
    "strided_as",
    "upper_bounded",
]
