"""Networks put together at random from the parts that removal has to handle."""

import random
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Step(NamedTuple):
    """A function of layers (by name) and earlier values (by number), and the channels of its result."""

    function: Callable[..., Tensor]
    layers: list[str]
    sources: list[int]
    width: int


def call(layer, *values):
    return layer(*values)


class RandomNet(nn.Module):
    """A random directed graph of layers over feature maps of one spatial size, with two outputs.

    The steps are drawn at construction; the forward only follows them.
    """

    def __init__(self, seed: int, steps: int = 10) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.layers = nn.ModuleDict()
        self.widths = [3]
        self.steps: list[Step] = []
        for _ in range(steps):
            self.steps.append(self.random.choice(PARTS)(self))
            self.widths.append(self.steps[-1].width)
        self.head = nn.Linear(self.widths[-1] * 16, 4)
        self.second_source = self.source()
        self.second = nn.Conv2d(self.widths[self.second_source], 2, 3, padding=1)
        self.used = {steps, self.second_source}
        for number in reversed(range(1, steps + 1)):
            if number in self.used:
                self.used.update(self.steps[number - 1].sources)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values = {0: x}
        for number, (function, layers, sources, _) in enumerate(self.steps, start=1):
            if number in self.used:
                values[number] = function(*(self.layers[name] for name in layers), *(values[i] for i in sources))
        flat = F.adaptive_avg_pool2d(values[len(self.steps)], 4).flatten(1)
        return self.head(flat), self.second(values[self.second_source])

    def source(self) -> int:
        """A value to read: most often the last one."""
        return len(self.widths) - 1 if self.random.random() < 0.7 else self.random.randrange(len(self.widths))

    def add(self, layer: nn.Module) -> str:
        name = f"layer{len(self.layers)}"
        self.layers[name] = layer
        return name


def convolution(net: RandomNet) -> Step:
    source, draw = net.source(), net.random
    width = net.widths[source]
    groups = draw.choice([1, 1, 1, width, 2 if width % 2 == 0 else 1])
    outputs = groups * draw.randint(1, 6) if groups < width else width * draw.randint(1, 2)
    size, mode = draw.choice([1, 3]), draw.choice(["zeros", "zeros", "reflect"])
    options = {"padding": size // 2, "groups": groups, "bias": draw.random() < 0.5, "padding_mode": mode}
    return Step(call, [net.add(nn.Conv2d(width, outputs, size, **options))], [source], outputs)


def transposed(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    groups = net.random.choice([1, 1, 2 if width % 2 == 0 else 1])
    outputs = groups * net.random.randint(1, 4)
    layer = nn.ConvTranspose2d(width, outputs, 3, padding=1, groups=groups, bias=net.random.random() < 0.5)
    return Step(call, [net.add(layer)], [source], outputs)


def norm(net: RandomNet) -> Step:
    source = net.source()
    return Step(call, [net.add(nn.BatchNorm2d(net.widths[source]))], [source], net.widths[source])


def activation(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    function = net.random.choice([torch.relu, torch.sigmoid, F.gelu, F.silu, F.hardswish, None])
    if function is None:
        return Step(call, [net.add(nn.PReLU(net.random.choice([1, width])))], [source], width)
    return Step(function, [], [source], width)


def pool(net: RandomNet) -> Step:
    pools = [
        lambda x: F.max_pool2d(x, 3, stride=1, padding=1),
        lambda x: F.avg_pool2d(x, 3, stride=1, padding=1),
        lambda x: F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False),
        lambda x: F.interpolate(F.max_pool2d(x, 2), scale_factor=2, mode="bilinear"),
    ]
    source = net.source()
    return Step(net.random.choice(pools), [], [source], net.widths[source])


def pad(net: RandomNet) -> Step:
    source, value = net.source(), net.random.choice([0.0, 0.5])
    return Step(lambda x: F.pad(x, (1, 1, 1, 1), value=value)[:, :, 1:-1, 2:], [], [source], net.widths[source])


def join(net: RandomNet) -> Step:
    source = net.source()
    others = [i for i, width in enumerate(net.widths) if width == net.widths[source]]
    function = net.random.choice([torch.add, torch.add, torch.mul, torch.sub, torch.maximum])
    return Step(function, [], [source, net.random.choice(others)], net.widths[source])


def concatenation(net: RandomNet) -> Step:
    first, second = net.source(), net.source()
    return Step(lambda a, b: torch.cat([a, b], 1), [], [first, second], net.widths[first] + net.widths[second])


def swapped_halves(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    sizes = [width - width // 2, width // 2] if width > 1 else [1]
    return Step(lambda x: torch.cat(x.split(sizes, 1)[::-1], 1), [], [source], width)


def tail(net: RandomNet) -> Step:
    source = net.source()
    start = net.random.randrange(net.widths[source])
    return Step(lambda x: x[:, start:], [], [source], net.widths[source] - start)


def squeeze_and_excite(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]

    def excite(down, up, x):
        return x * torch.sigmoid(up(torch.relu(down(x.mean((2, 3))))))[:, :, None, None]

    return Step(excite, [net.add(nn.Linear(width, 3)), net.add(nn.Linear(3, width))], [source], width)


def reused(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    fitting = [
        name
        for name, layer in net.layers.items()
        if getattr(layer, "in_channels", getattr(layer, "num_features", None)) == width
    ]
    if not fitting:
        return activation(net)
    name = net.random.choice(fitting)
    return Step(call, [name], [source], getattr(net.layers[name], "out_channels", width))


def pixelwise_linear(net: RandomNet) -> Step:
    source, outputs = net.source(), net.random.randint(1, 6)
    layer = nn.Linear(net.widths[source], outputs, bias=net.random.random() < 0.5)
    function = lambda layer, x: layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # noqa: E731
    return Step(function, [net.add(layer)], [source], outputs)


PARTS = [
    *(convolution, convolution, transposed, norm, norm, activation, activation, pool, pad),
    *(join, join, concatenation, swapped_halves, tail, squeeze_and_excite, reused, pixelwise_linear),
]
