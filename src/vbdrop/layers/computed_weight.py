"""Layers of other classes that compute their weight in their forward, or write the product in their own way.

An example is a convolution that standardises its weight. Whatever the weight is computed from, the inputs of such a
layer can have gates; without its class, it is a layer of torch with the computed weight.
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
"""The layers of torch whose subclasses are tried."""

PRODUCTS = (F.linear, F.conv1d, F.conv2d, F.conv3d)

MARK = "plain_product"
"""The attribute of a layer that has lost its class; a plan has it, too."""

SPARE = 2
"""The least size of what a convolution is tried on, besides what its kernel covers."""

TRIALS = 4
"""The number of inputs that are tried: as many sizes of images in a row, or numbers of leading axes."""

SCALES = (1e-3, 1.0, 1e4)
"""The scales of the inputs that are tried, since a forward may clamp large inputs or ignore small ones."""


class _Products(TorchFunctionMode):
    """Takes down the weights of all products."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if func in PRODUCTS:
            self.weights.append(args[1] if len(args) > 1 else kwargs.get("weight"))
        return func(*args, **kwargs)


def base_of(module: nn.Module) -> type[nn.Module] | None:
    """The layer of torch that a module of another class, without a noisy layer of its own, inherits from."""
    kind = type(module)
    if kind in LAYERS or kind in LAYERS.values():
        return None
    return next((base for base in BASES if issubclass(kind, base)), None)


@torch.no_grad()
def computed_weight(module: nn.Module) -> Tensor | None:
    """The weight with which a layer of another class computes what its parent would; None if it does anything else.

    It is found by trying, in training and in eval mode, on inputs of several scales and shapes.

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
    for parameter in other.parameters():  # what starts at zero or one must not hide what it does
        parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
    try:
        return _found(module, base) if _found(other, base) is not None else None
    except Exception:  # whatever a forward raises that takes something else
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
    """Whether a layer answers inputs with these outputs, in both modes; any will do where they overflow."""
    if not bool(wanted.isfinite().all()):
        return True
    largest = wanted.abs().max().clamp_min(1e-12)
    results = [module.train()(x), module.eval()(x)]
    return all(r.shape == wanted.shape and bool((r - wanted).abs().max() <= 1e-5 * largest) for r in results)


def _inputs(module: nn.Module, number: int) -> Tensor:
    """Random inputs; images of another size, or features with other leading axes, for each number."""
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
    """Make a layer of torch of one of another class, with the weight that it computes, in place.

    Args:
        module: A layer without gates; on the meta device it is taken for one.

    Returns:
        Whether it is one now.
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
    """Make layers of torch of all layers of a model that compute their weight themselves, in place.

    A layer whose parameters another module has, too, stays as it is.

    Args:
        model: A model without gates.
        own_classes: The layers that keep their class.
    """
    holders = Counter(id(p) for module in model.modules() for p in module._parameters.values() if p is not None)
    for name, module in model.named_modules():
        is_tied = any(holders[id(p)] > 1 for p in module.parameters(recurse=False))
        if base_of(module) is not None and not is_tied and name not in own_classes:
            make_product_(module)


class GatedProduct(NoisyLayer):
    """A layer of another class whose inputs have gates; its own forward gets the gated inputs.

    The class of a module becomes a subclass of this one, of the noisy layer of its parent and of its own.
    """

    plain: ClassVar[type[nn.Module]] = nn.Module

    def forward(self, input: Tensor) -> Tensor:
        """The layer's output, with noise in training."""
        gate, output_gate = self._modules.get("gate"), self._modules.get("output_gate")
        out: Tensor = type(self).plain.forward(self, input if gate is None else gate(input))
        return out if output_gate is None else output_gate(out)

    def make_plain_(self, threshold: float | None = None) -> None:
        """Fold the gates into the computed weight; the layer is then one of torch.

        Raises:
            ValueError: If its forward computes something else by now.
        """
        become_noisy_product_(self)
        self.make_plain_(threshold)

    def strip_(self) -> None:
        """Remove the gates: the layer is again what it was."""
        super().strip_()
        self.__class__ = type(self).plain  # type: ignore[assignment]  # the class that it had

    def __reduce_ex__(self, protocol: Any) -> Any:  # noqa: ANN401 -- as pickle wants it
        return _blank, (type(self).plain,), self.__dict__


_CLASSES: dict[type[nn.Module], type[GatedProduct]] = {}


def gated_product_class(plain: type[nn.Module]) -> type[GatedProduct]:
    """The class of such a layer with gates, the same one for each class."""
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
    """The layer with its own class and without its gates, which come back with the class unless that was changed."""
    kind = type(module)
    gates = {name: module._modules.pop(name) for name in module.gate_names if name in module._modules}
    module.__class__ = kind.plain  # type: ignore[assignment]  # for a moment
    try:
        yield module
    finally:
        if type(module) is kind.plain:
            module.__class__ = kind
        module._modules.update(gates)


def can_be_product(module: nn.Module) -> bool:
    """Whether a layer of another class computes a product; on the meta device it is taken for one."""
    is_outline = any(parameter.is_meta for parameter in module.parameters())
    return base_of(module) is not None and (is_outline or computed_weight(module) is not None)


def is_still_product(module: GatedProduct) -> bool:
    """Whether the forward of a layer with gates still computes a product; on the meta device it is taken for one."""
    with _without_gates(module) as plain:
        return can_be_product(plain)


def become_noisy_product_(module: GatedProduct) -> None:
    """Let a layer with gates go on as the noisy layer of its parent, with the weight that it computes.

    Raises:
        ValueError: If its forward computes something else than a product by now.
    """
    name = type(module).plain.__name__
    with _without_gates(module) as plain:
        done = make_product_(plain)
    if not done:
        raise ValueError(f"{name} must compute a product with its inputs; by now it does not.")
    module.__class__ = LAYERS[type(module)]  # type: ignore[assignment]
