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

    def __init__(self, seed: int, steps: int = 10, hard: float = 0.0, streams: bool = False) -> None:
        super().__init__()
        self.random = random.Random(seed)
        parts = STREAM_PARTS if streams else PARTS
        self.reads_twice: set[int] = set()
        self.never_called: set[str] = set()
        self.layers = nn.ModuleDict()
        self.widths = [3]
        self.steps: list[Step] = []
        for _ in range(steps):
            is_hard = hard > 0 and self.random.random() < hard
            self.steps.append(self.random.choice(HARD_PARTS if is_hard else parts)(self))
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
    other = net.random.choice(others)
    if function is torch.sub and other == source:  # zeros that no rule of arithmetic on channels can see
        function = torch.add
    return Step(function, [], [source, other], net.widths[source])


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
        and not isinstance(layer, nn.Conv3d)  # which does not take these values as they are
    ]
    if not fitting:
        return activation(net)
    name = net.random.choice(fitting)
    if name in net.never_called:  # until now
        net.reads_twice.add(len(net.steps) + 1)
    return Step(call, [name], [source], getattr(net.layers[name], "out_channels", width))


def pixelwise_linear(net: RandomNet) -> Step:
    source, outputs = net.source(), net.random.randint(1, 6)
    layer = nn.Linear(net.widths[source], outputs, bias=net.random.random() < 0.5)
    function = lambda layer, x: layer(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)  # noqa: E731
    return Step(function, [net.add(layer)], [source], outputs)


class Own(nn.Module):
    """A parameter and what is done with it."""

    def __init__(self, shape, function) -> None:
        super().__init__()
        self.own, self.function = nn.Parameter(torch.zeros(shape)), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.own)


def meets_parameter(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    kinds = [
        ((width, 1, 1), lambda x, own: x * own, width),
        ((1, width, 6, 6), lambda x, own: x + own, width),
        ((width, 3), lambda x, own: torch.einsum("bihw,io->bohw", x, own), 3),
        ((width, 4), lambda x, own: (x.permute(0, 2, 3, 1) @ own).permute(0, 3, 1, 2), 4),
    ]
    shape, function, outputs = net.random.choice(kinds)
    return Step(call, [net.add(Own(shape, function))], [source], outputs)


class Activated(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(super().forward(x))


class Last(nn.Module):
    """A norm over the last axis, for images."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def other_norm(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    halves = width // 2 if width % 2 == 0 else width
    norms = [
        *(nn.InstanceNorm2d(width, affine=True), nn.GroupNorm(halves, width), nn.GroupNorm(1, width)),
        *(Activated(width), Last(nn.LayerNorm(width)), Last(nn.RMSNorm(width))),
    ]
    if width == 1:  # a norm over a single channel leaves a constant or its sign, which no rule sees
        norms[-2:] = [Activated(width)] * 2
    return Step(call, [net.add(net.random.choice(norms))], [source], width)


def selection(net: RandomNet) -> Step:
    source = net.source()
    other = net.random.choice([i for i, width in enumerate(net.widths) if width == net.widths[source]])
    functions = [
        lambda a, b: torch.where(a > 0.1, a, b),
        lambda a, b: torch.stack([a, b], 1).amax(1),
        lambda a, b: a.masked_fill(b < 0, 0.0),
        overwritten,
    ]
    return Step(net.random.choice(functions), [], [source, other], net.widths[source])


def overwritten(a: Tensor, b: Tensor) -> Tensor:
    a = a.clone()
    a[:, 1:3] = b[:, 1:3]
    return a


def rearrangement(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    order = torch.tensor(net.random.sample(range(width), width - width // 3))
    kinds = [
        (lambda x: x.roll(2, 1), width),
        (lambda x: x[:, order], len(order)),
        (lambda x: F.pad(x, (0, 0, 0, 0, 1, 2), value=0.5), width + 3),
        (lambda x: x.roll((1, 2), (2, 1)), width),
    ]
    if width % 2 == 0:
        kinds += [
            (lambda x: F.glu(x, 1), width // 2),
            (lambda x: torch.mul(*x.chunk(2, 1)), width // 2),
        ]
    if width % 2 == 0 and width > 2:
        kinds += [(lambda x: x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2), width)]
    if width % 4 == 0:
        kinds += [(lambda x: F.pixel_unshuffle(F.pixel_shuffle(x, 2) ** 2, 2), width)]
    function, outputs = net.random.choice(kinds)
    return Step(function, [], [source], outputs)


class Heads(nn.Module):
    """Attention over the pixels."""

    def __init__(self, width: int, heads: int, explicit: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.explicit = nn.Linear(width, 6 * heads), nn.Linear(2 * heads, width), explicit

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x.flatten(2).mT).unflatten(-1, (3, -1, 2)).permute(2, 0, 3, 1, 4)
        out = torch.softmax(q @ k.mT, -1) @ v if self.explicit else F.scaled_dot_product_attention(q, k, v)
        return self.out(out.transpose(1, 2).flatten(2)).mT.unflatten(2, x.shape[2:])


def heads(net: RandomNet) -> Step:
    source, draw = net.source(), net.random
    width = net.widths[source]
    return Step(call, [net.add(Heads(width, draw.randint(1, 4), draw.random() < 0.5))], [source], width)


class Block(nn.Module):
    """A residual block of a transformer over the pixels, with its norm before or behind."""

    def __init__(self, width: int, draw: random.Random) -> None:
        super().__init__()
        kinds = [nn.LayerNorm(width), nn.RMSNorm(width), nn.LayerNorm(width, elementwise_affine=False)]
        self.norm, self.before = draw.choice(kinds), draw.random() < 0.7
        self.num_heads, self.head = draw.randint(1, 3), 2
        self.first = nn.Linear(width, 6 * self.num_heads)
        self.second = nn.Linear(2 * self.num_heads, width)
        self.attends = draw.random() < 0.5

    def inner(self, x: Tensor) -> Tensor:
        q, k, v = self.first(x).chunk(3, -1)
        if not self.attends:
            return self.second(F.gelu(q * k + v))
        q, k, v = (part.unflatten(-1, (-1, self.head)).transpose(1, 2) for part in (q, k, v))
        return self.second(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(2).mT
        tokens = tokens + self.inner(self.norm(tokens)) if self.before else self.norm(tokens + self.inner(tokens))
        return tokens.mT.unflatten(2, x.shape[2:])


def block(net: RandomNet) -> Step:
    source = net.source()
    return Step(call, [net.add(Block(net.widths[source], net.random))], [source], net.widths[source])


class OverRows(nn.Module):
    """A recurrent layer over the rows, and what is read of it: its outputs, with or without its last states.

    Over all pixels it would be the same, but a trace takes its time for every step.
    """

    def __init__(self, layer: nn.RNNBase, with_states: bool) -> None:
        super().__init__()
        self.layer, self.with_states = layer, with_states

    def forward(self, x: Tensor) -> Tensor:
        out, states = self.layer(x.mean(3).mT)
        if self.with_states:
            last = states[0] if isinstance(self.layer, nn.LSTM) else states
            ends = torch.cat([last[-2], last[-1]], 1) if self.layer.bidirectional else last[-1]
            out = out * torch.sigmoid(ends).unsqueeze(1)
        return out.mT.unsqueeze(3).expand(-1, -1, -1, x.shape[3])


def recurrent(net: RandomNet) -> Step:
    source, draw = net.source(), net.random
    width, hidden, both = net.widths[source], draw.randint(1, 4), draw.random() < 0.5
    options = {"num_layers": draw.randint(1, 2), "bidirectional": both, "bias": draw.random() < 0.7}
    kind = draw.choice([nn.LSTM, nn.GRU, nn.RNN])
    if kind is nn.LSTM and hidden > 2 and draw.random() < 0.4:
        options["proj_size"] = hidden - 1
    layer = OverRows(kind(width, hidden, batch_first=True, **options), draw.random() < 0.4)
    outputs = options.get("proj_size", hidden) * (1 + both)
    return Step(call, [net.add(layer)], [source], outputs)


class Places(nn.Module):
    """An embedding of the pixels' places, added to them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, width)

    def forward(self, x: Tensor) -> Tensor:
        places = self.embedding(torch.arange(x.shape[2] * x.shape[3]) % 7)
        return x + places.t().unflatten(1, x.shape[2:])


def places(net: RandomNet) -> Step:
    source = net.source()
    return Step(call, [net.add(Places(net.widths[source]))], [source], net.widths[source])


def bilinear(net: RandomNet) -> Step:
    first, second, outputs = net.source(), net.source(), net.random.randint(1, 4)
    layer = nn.Bilinear(net.widths[first], net.widths[second], outputs, bias=net.random.random() < 0.5)

    def apply(layer, a, b):
        return layer(a.permute(0, 2, 3, 1), b.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    return Step(apply, [net.add(layer)], [first, second], outputs)


def instance_norm(net: RandomNet) -> Step:
    source = net.source()
    layer = nn.InstanceNorm2d(net.widths[source], affine=net.random.random() < 0.5)
    return Step(call, [net.add(layer)], [source], net.widths[source])


def group_norm(net: RandomNet) -> Step:
    source = net.source()
    width = net.widths[source]
    groups = net.random.choice([number for number in range(1, width + 1) if width % number == 0])
    return Step(call, [net.add(nn.GroupNorm(groups, width))], [source], width)


def convolution_3d(net: RandomNet) -> Step:
    source, outputs = net.source(), net.random.randint(1, 6)
    layer = nn.Conv3d(net.widths[source], outputs, 3, padding=1, bias=net.random.random() < 0.5)
    return Step(lambda layer, x: layer(x.unsqueeze(2)).squeeze(2), [net.add(layer)], [source], outputs)


def read_twice(net: RandomNet) -> Step:
    """A convolution whose weight is also read directly; a model that does so may be refused."""
    source, outputs = net.source(), net.random.randint(1, 6)
    layer = nn.Conv2d(net.widths[source], outputs, 3, padding=1)
    net.reads_twice.add(len(net.steps) + 1)
    return Step(lambda layer, x: layer(x) + F.conv2d(x, layer.weight, padding=1), [net.add(layer)], [source], outputs)


def read_directly(net: RandomNet) -> Step:
    """A convolution that is never called."""
    source, outputs = net.source(), net.random.randint(1, 6)
    layer = nn.Conv2d(net.widths[source], outputs, 1)
    name = net.add(layer)
    net.never_called.add(name)
    return Step(lambda layer, x: F.conv2d(x, layer.weight, layer.bias), [name], [source], outputs)


def size_branch(net: RandomNet) -> Step:
    source, limit, axis = net.source(), net.random.choice([4, 8, 12]), net.random.choice([0, 2, 3])

    def branch(x: Tensor) -> Tensor:
        return x * x.mean(1, keepdim=True) if x.shape[axis] >= limit else torch.relu(x)

    return Step(branch, [], [source], net.widths[source])


def mixed_positions(net: RandomNet) -> Step:
    """Layers over the columns of an image, which leave the channels what they are."""
    source, draw = net.source(), net.random
    layers = [net.add(nn.Linear(6, 4, bias=draw.random() < 0.5)), net.add(nn.Linear(4, 6, bias=draw.random() < 0.5))]
    added = draw.random() < 0.5

    def mix(wide, narrow, x):
        mixed = narrow(torch.relu(wide(x)))
        return x + mixed if added else mixed

    return Step(mix, layers, [source], net.widths[source])


def over_positions(net: RandomNet) -> Step:
    """Divided by norms over positions, or arithmetic on three tensors."""
    source = net.source()
    width = net.widths[source]
    others = [i for i, other in enumerate(net.widths) if other == width]
    kinds = [
        lambda x, _: x / x.norm(dim=(2, 3), keepdim=True).clamp_min(0.5),
        lambda x, y: torch.addcmul(x, y, x, value=0.5),
        lambda x, y: torch.lerp(x, y, 0.3),
        lambda x, y: torch.addcdiv(x, y, x.abs() + 1),
    ]
    return Step(net.random.choice(kinds), [], [source, net.random.choice(others)], width)


HARD_PARTS = [instance_norm, group_norm, convolution_3d, read_twice, read_directly, size_branch]
"""Parts that removal may have to leave, and then has to name, or to refuse."""

PARTS = [
    *(mixed_positions, over_positions),
    *(meets_parameter, other_norm, selection, rearrangement, rearrangement, heads),
    *(recurrent, recurrent, places, bilinear),
    *(convolution, convolution, transposed, norm, norm, activation, activation, pool, pad),
    *(join, join, concatenation, swapped_halves, tail, squeeze_and_excite, reused, pixelwise_linear),
]

STREAM_PARTS = [
    *(block, block, block, block, other_norm, norm, activation),
    *(convolution, join, join, concatenation, pixelwise_linear, tail),
]
"""Residual streams with norms, attention and feed-forward blocks, and what they meet."""
