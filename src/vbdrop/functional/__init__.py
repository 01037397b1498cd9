"""Pure tensor functions: sampling by local reparameterization, gates, masks, and the KL with its gradient."""

from vbdrop.functional.bounds import upper_bounded
from vbdrop.functional.gated_linear import gated_linear
from vbdrop.functional.gates import apply_gate
from vbdrop.functional.joined_kl import JoinedKL
from vbdrop.functional.kl import kl_sum
from vbdrop.functional.local_reparameterization import noisy_product, noisy_product_reference
from vbdrop.functional.masks import alive, keep_factor, masked
from vbdrop.functional.noisy_gates import noisy_gates, noisy_gates_reference
from vbdrop.functional.noisy_weights import noisy_weights, noisy_weights_reference
from vbdrop.functional.products import Convolution, MatrixProduct, Product
from vbdrop.functional.rated_linear import rated_linear

__all__ = [
    "Convolution",
    "JoinedKL",
    "MatrixProduct",
    "Product",
    "alive",
    "apply_gate",
    "gated_linear",
    "keep_factor",
    "kl_sum",
    "masked",
    "noisy_gates",
    "noisy_gates_reference",
    "noisy_product",
    "noisy_product_reference",
    "noisy_weights",
    "noisy_weights_reference",
    "rated_linear",
    "upper_bounded",
]
