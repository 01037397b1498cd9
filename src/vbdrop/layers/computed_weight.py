"""Subclasses of torch layers that compute their weight in their forward, or write the product in their own way.

An example is a convolution that standardises its weight. However the weight is computed, the inputs of such a layer can
have gates, and the layer can be replaced by the torch layer with the computed weight.
"""

import copy
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode

from vbdrop._torch_compat import ConvNd
from vbdrop.layers.layer import NoisyLayer
from vbdrop.layers.table import LAYERS

BASES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
"""The torch layers whose subclasses are tried."""

PRODUCTS = (F.linear, F.conv1d, F.conv2d, F.conv3d)

MARK = "plain_product"
"""The attribute that marks a layer whose class was replaced; plans use the same name."""

SPARE = 2
"""The smallest margin by which a convolution's test images exceed the span of its kernel."""

TRIALS = 4
"""The number of test inputs, each with a different image size or number of leading axes."""

SCALES = (1e-3, 1.0, 1e4)
"""The scales of the test inputs, since a forward may clamp large inputs or ignore small ones."""


class _Products(TorchFunctionMode):
    """Records the weights of all products."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if func in PRODUCTS:
            self.weights.append(args[1] if len(args) > 1 else kwargs.get("weight"))
        return func(*args, **kwargs)


def base_of(module: nn.Module) -> type[nn.Module] | None:
    """The torch layer that a module inherits from; None if the module's class is in the table of layers itself."""
    kind = type(module)
    if kind in LAYERS or kind in LAYERS.values():
        return None
    return next((base for base in BASES if issubclass(kind, base)), None)


@torch.no_grad()
def computed_weight(module: nn.Module) -> Tensor | None:
    """The weight with which a subclass computes what the torch layer would; None if it computes anything else.

    The layer is tested in training and in eval mode, on inputs of several scales and shapes.

    Args:
        module: A layer without gates.

    Example:
        >>> class Centred(nn.Linear):
        ...     def forward(self, x):
        ...         return F.linear(x, self.weight - self.weight.mean(), self.bias)
        >>> layer = Centred(2, 1)
        >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, 3.0]]))
        >>> computed_weight(layer)
        tensor([[-1.,  1.]])
    """
    own, base = module._parameters, base_of(module)
    if base is None or own.get("weight") is None or "forward" in module.__dict__ or is_parametrized(module):
        return None
    if module._modules or any(True for _ in module.buffers()) or any(p.is_meta for p in module.parameters()):
        return None
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    for parameter in other.parameters():  # a parameter at zero or one could have no visible effect
        parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
    try:
        return _found(module, base) if _found(other, base) is not None else None
    except Exception:  # a forward that takes other inputs may raise anything
        return None


def _found(module: nn.Module, base: type[nn.Module]) -> Tensor | None:
    weight: Tensor = module.weight  # type: ignore[assignment]
    was = module.training
    try:
        with _Products() as products:
            module.train()(_inputs(module, 0))
        found = next((w for w in products.weights if isinstance(w, Tensor) and w.shape == weight.shape), weight)
        inputs = [scale * _inputs(module, number) for number in range(1, TRIALS + 1) for scale in SCALES]
        same = all(_gives(module, x, _product(module, base, x, found)) for x in inputs)
    finally:
        module.train(was)
    return found.detach() if same else None


def _gives(module: nn.Module, x: Tensor, wanted: Tensor) -> bool:
    """Whether a layer maps the inputs to these outputs, in both modes; True if the outputs overflow."""
    if not bool(wanted.isfinite().all()):
        return True
    largest = wanted.abs().max().clamp_min(1e-12)
    results = [module.train()(x), module.eval()(x)]
    return all(r.shape == wanted.shape and bool((r - wanted).abs().max() <= 1e-5 * largest) for r in results)


def _inputs(module: nn.Module, number: int) -> Tensor:
    """Random inputs; each number gives a different image size or number of leading axes."""
    generator = torch.Generator().manual_seed(number)
    if isinstance(module, ConvNd):
        size = [2, module.in_channels]
        size += [d * (k - 1) + SPARE + number for k, d in zip(module.kernel_size, module.dilation, strict=True)]
    else:
        size = [*[2] * max(number, 1), module.in_features]  # type: ignore[list-item]
    return torch.randn(size, generator=generator).to(module.weight)  # type: ignore[arg-type]


def _product(module: nn.Module, base: type[nn.Module], x: Tensor, weight: Tensor) -> Tensor:
    if isinstance(module, ConvNd):
        return base._conv_forward(module, x, weight, module.bias)  # type: ignore[attr-defined, no-any-return]
    return F.linear(x, weight, module.bias)  # type: ignore[arg-type]


def make_product_(module: nn.Module) -> bool:
    """Turn a subclass of a torch layer into that layer, with the weight that it computes, in place.

    Args:
        module: A layer without gates; on the meta device it is not tested.

    Returns:
        Whether the layer was changed.
    """
    base = base_of(module)
    is_outline = any(parameter.is_meta for parameter in module.parameters())
    weight = None if is_outline else computed_weight(module)
    if base is None or (weight is None and not is_outline):
        return False
    if weight is not None:
        module.weight.data.copy_(weight)  # type: ignore[operator]
    for name in module._parameters.keys() - {"weight", "bias"}:
        del module._parameters[name]
    module.__class__ = base
    setattr(module, MARK, 1)
    return True


def make_products_(model: nn.Module, own_classes: Collection[str] = ()) -> None:
    """Apply `make_product_` to all layers of a model, in place.

    Layers that share parameters with another module are not changed.

    Args:
        model: A model without gates.
        own_classes: The names of the layers that keep their class.
    """
    holders = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    for name, module in model.named_modules():
        is_tied = any(holders[id(p)] > 1 for p in module.parameters(recurse=False))
        if base_of(module) is not None and not is_tied and name not in own_classes:
            make_product_(module)


class GatedProduct(NoisyLayer):
    """A subclass of a torch layer with gated inputs; its own forward receives them.

    The module's class becomes a subclass of three: this one, the noisy version of the torch layer, and its own.
    """

    plain: ClassVar[type[nn.Module]] = nn.Module

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output, with noise in training."""
        gate, output_gate = self._modules.get("gate"), self._modules.get("output_gate")
        out: Tensor = type(self).plain.forward(self, input if gate is None else gate(input))
        return out if output_gate is None else output_gate(out)

    def make_plain_(self, threshold: float | None = None) -> None:
        """Fold the gates into the computed weight; the layer becomes a plain torch layer.

        Raises:
            ValueError: If its forward no longer computes a product.
        """
        become_noisy_product_(self)
        self.make_plain_(threshold)

    def strip_(self) -> None:
        """Remove the gates and restore the original class."""
        super().strip_()
        self.__class__ = type(self).plain  # type: ignore[assignment]  # the original class

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 -- as pickle requires
        return _blank, (type(self).plain,), self.__dict__


_CLASSES: dict[type[nn.Module], type[GatedProduct]] = {}


def gated_product_class(plain: type[nn.Module]) -> type[GatedProduct]:
    """The gated version of a layer's class; the same class always gives the same result."""
    if plain not in _CLASSES:
        noisy = LAYERS[next(base for base in BASES if issubclass(plain, base))]
        name, contents = f"Gated{plain.__name__}", {"__module__": __name__, "plain": plain}
        _CLASSES[plain] = type(name, (GatedProduct, noisy, plain), contents)
    return _CLASSES[plain]


def _blank(plain: type[nn.Module]) -> GatedProduct:
    """An instance for pickle and copy to fill."""
    kind = gated_product_class(plain)
    return kind.__new__(kind)


@contextmanager
def _without_gates(module: GatedProduct) -> Iterator[nn.Module]:
    """Temporarily give a layer its original class without gates; a class that is changed meanwhile is kept."""
    kind = type(module)
    gates = {name: module._modules.pop(name) for name in module.gate_names if name in module._modules}
    module.__class__ = kind.plain  # type: ignore[assignment]  # temporarily
    try:
        yield module
    finally:
        if type(module) is kind.plain:
            module.__class__ = kind
        module._modules.update(gates)


def can_be_product(module: nn.Module) -> bool:
    """Whether a subclass of a torch layer computes a product; on the meta device this is assumed."""
    is_outline = any(parameter.is_meta for parameter in module.parameters())
    return base_of(module) is not None and (is_outline or computed_weight(module) is not None)


def is_still_product(module: GatedProduct) -> bool:
    """Whether the forward of a gated layer still computes a product; on the meta device this is assumed."""
    with _without_gates(module) as plain:
        return can_be_product(plain)


def become_noisy_product_(module: GatedProduct) -> None:
    """Turn a gated layer into the noisy version of its torch layer, with the weight that it computes, in place.

    Raises:
        ValueError: If its forward no longer computes a product.
    """
    name = type(module).plain.__name__
    with _without_gates(module) as plain:
        done = make_product_(plain)
    if not done:
        raise ValueError(f"{name} must compute a product with its inputs; it no longer does.")
    module.__class__ = LAYERS[type(module)]  # type: ignore[assignment]
