"""Small versions of the architectures on which removal has to be exact, and ways to mask them."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from vbdrop._torch_compat import pytree
from vbdrop.analysis.graph import trace
from vbdrop.compression.removal import Removal, remove


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(20, 16), nn.Linear(16, 12), nn.Linear(12, 5)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.fc3(torch.tanh(self.fc2(self.drop(torch.sigmoid(self.fc1(x))))))


class LeNet5(nn.Module):
    """With a size spelled out in the forward."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 10, 5)
        self.fc1, self.fc2 = nn.Linear(160, 24), nn.Linear(24, 10)

    def forward(self, x):
        x = max_pool2d(relu(self.conv1(x)), 2)
        x = max_pool2d(relu(self.conv2(x)), 2)
        return self.fc2(relu(self.fc1(x.view(-1, 160))))


def conv_norm(inputs: int, outputs: int, size: int = 3, **options) -> nn.Sequential:
    """A zero-padded convolution without a bias, and its batch normalisation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options), nn.BatchNorm2d(outputs)
    )


class VGG(nn.Module):
    def __init__(self):
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs in ((3, 8), (8, 8), (8, 12), (12, 12)):
            layers += [conv_norm(inputs, outputs), nn.ReLU(inplace=True)]
            if inputs == outputs:
                layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(12 * 4, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 10)
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.conv1, self.conv2 = conv_norm(inputs, outputs, stride=stride), conv_norm(outputs, outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else conv_norm(inputs, outputs, 1, stride=stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.conv2(self.relu(self.conv1(x)))
        out += self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_norm(3, 8)
        self.blocks = nn.Sequential(Residual(8, 8), Residual(8, 8), Residual(8, 12, stride=2), Residual(12, 12))
        self.head = nn.Linear(12, 10)

    def forward(self, x):
        return self.head(self.blocks(relu(self.stem(x))).mean((2, 3)))


class DenseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1, bias=False) for i in range(3))
        self.transition = nn.Conv2d(20, 10, 1)
        self.head = nn.Linear(10, 5)

    def forward(self, x):
        features = [self.stem(x)]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            features.append(conv(relu(norm(torch.cat(features, 1)))))
        x = nn.functional.avg_pool2d(self.transition(torch.cat(features, 1)), 2)
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


class MobileNetV2(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_norm(3, 6)
        self.expand = nn.ModuleList(conv_norm(6, 12, 1) for _ in range(2))
        self.depthwise = nn.ModuleList(conv_norm(12, 12, groups=12) for _ in range(2))
        self.project = nn.ModuleList(conv_norm(12, 6, 1) for _ in range(2))
        self.head = nn.Linear(6, 5)

    def forward(self, x):
        x = self.stem(x)
        for expand, depthwise, project in zip(self.expand, self.depthwise, self.project, strict=True):
            x = x + project(nn.functional.relu6(depthwise(nn.functional.relu6(expand(x)))))
        return self.head(x.mean([2, 3]))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2 = conv_norm(1, 6), conv_norm(6, 8)
        self.bottom = conv_norm(8, 12)
        self.up2, self.up1 = nn.ConvTranspose2d(12, 8, 2, stride=2), nn.ConvTranspose2d(8, 6, 3, 2, 1, 1)
        self.merge2, self.merge1 = conv_norm(16, 8), conv_norm(12, 6)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x):
        first = relu(self.down1(x))
        second = relu(self.down2(max_pool2d(first, 2)))
        x = relu(self.bottom(max_pool2d(second, 2)))
        x = relu(self.merge2(torch.cat([self.up2(x), second], dim=1)))
        x = relu(self.merge1(torch.cat([self.up1(x), first], dim=1)))
        return self.head(x)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


class LSTMClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.head = nn.Sequential(nn.Linear(8, 12), nn.ReLU(), nn.Linear(12, 3))

    def forward(self, tokens):
        states, _ = self.lstm(self.embed(tokens))
        return self.head(states[:, -1])


@dataclass(frozen=True)
class Case:
    """A network, an example for it, and whether every part of it can become smaller."""

    build: Callable[[], nn.Module]
    example: Callable[[], Tensor]
    shrinks: bool = True


NETS: dict[str, Case] = {
    "mlp": Case(MLP, lambda: torch.randn(3, 20)),
    "lenet5": Case(LeNet5, lambda: torch.randn(3, 1, 28, 28)),
    "vgg": Case(VGG, lambda: torch.randn(3, 3, 8, 8)),
    "resnet": Case(ResNet, lambda: torch.randn(3, 3, 8, 8)),
    "densenet": Case(DenseNet, lambda: torch.randn(3, 3, 8, 8)),
    "mobilenet": Case(MobileNetV2, lambda: torch.randn(3, 3, 8, 8)),
    "unet": Case(UNet, lambda: torch.randn(3, 1, 8, 8)),
    "transformer": Case(Transformer, lambda: torch.randn(3, 5, 6), shrinks=False),
    "lstm": Case(LSTMClassifier, lambda: torch.randint(0, 11, (3, 7)), shrinks=False),
}


class Branches(nn.ModuleList):
    """Several models on the same input, side by side: one trace shows what each of them loses."""

    def forward(self, x):
        return [branch(x) for branch in self]


@torch.no_grad()
def randomise_(model: nn.Module) -> nn.Module:
    """Random biases and batch-norm statistics, as after training; weights that keep the scale of what passes."""
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() > 1:
                fan_in = parameter[0].numel()
                parameter.normal_(0, 1.5 / math.sqrt(fan_in))
            elif name == "weight":
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The matrices and kernels of a model."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.dim() > 1}


@torch.no_grad()
def mask_weights_(model: nn.Module, share: float) -> None:
    """Zero this share of the weights of every layer."""
    for weight in weights_of(model).values():
        weight[torch.rand_like(weight) < share] = 0


@torch.no_grad()
def mask_units_(model: nn.Module, share: float, sides: str = "either") -> None:
    """Zero this share of the rows or of the columns of every layer, or of either, but never all of them."""
    for weight in weights_of(model).values():
        side = ["rows", "columns"][int(torch.randint(2, ()))] if sides == "either" else sides
        axis = 0 if side == "rows" else 1
        dead = torch.rand(weight.shape[axis]) < share
        dead[torch.randint(len(dead), ())] = False
        weight.index_fill_(axis, dead.nonzero().flatten(), 0.0)


@torch.no_grad()
def mask_layers_(model: nn.Module, share: float) -> None:
    """Zero whole layers, at least one, and some units of the others."""
    mask_units_(model, 0.3)
    weights = list(weights_of(model).values())
    dead = torch.rand(len(weights)) < share
    dead[torch.randint(len(weights), ())] = True
    for i in dead.nonzero().flatten().tolist():
        weights[i].zero_()


def difference(model: nn.Module, small: nn.Module, *args, **kwargs) -> float:
    """The largest difference between the outputs of two models, as a share of the largest output."""
    with torch.no_grad():
        expected, found = pytree.tree_leaves(model(*args, **kwargs)), pytree.tree_leaves(small(*args, **kwargs))
    assert [tensor.shape for tensor in found] == [tensor.shape for tensor in expected]
    pairs = zip(expected, found, strict=True)
    return max(float(((a - b).abs().max() / a.abs().max().clamp_min(1e-30)).detach()) for a, b in pairs)


def removed(model: nn.Module, *args, rewrite: bool = True, tolerance: float = 1e-10, **kwargs) -> Removal:
    """Make a model smaller, and see that its outputs stay the same, also for another batch."""
    model = model.double().eval()
    before = copy.deepcopy(model.state_dict())
    removal = remove(model, trace(model, args, kwargs), args, kwargs, rewrite=rewrite)
    assert removal.left.get("model") is None, removal.left
    assert difference(model, removal.model, *args, **kwargs) <= tolerance
    more_args, more_kwargs = pytree.tree_map(lambda leaf: torch.cat([leaf.flip(0)] * 2), (args, kwargs))
    assert difference(model, removal.model, *more_args, **more_kwargs) <= tolerance
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    return removal


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's weights."""
    return {name: tuple(weight.shape) for name, weight in weights_of(model).items()}
