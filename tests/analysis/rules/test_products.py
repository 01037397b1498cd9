import copy

import pytest
import torch
from tests.compression.nets import Branches, randomise_, removed, shapes
from torch import nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.rewriting.apply_plan import apply_plan_

IMAGES = torch.randn(2, 4, 9, 9).double()


def constants_of(model: nn.Module, x: torch.Tensor):
    model = model.double().eval()
    return propagate(trace(model, (x,)), model).products[-1].outputs


@torch.no_grad()
def test_a_unit_without_incoming_weights_is_its_bias():
    layer = randomise_(nn.Linear(4, 3)).double()
    layer.weight[1] = 0
    outputs = constants_of(layer, torch.randn(2, 4).double())
    assert outputs.known.tolist() == [False, True, False]
    assert outputs.value[1] == layer.bias[1]


FOLDING = [
    nn.Conv2d(6, 3, 3),
    nn.Conv2d(6, 3, 3, stride=2, dilation=2),
    nn.Conv2d(6, 3, 1, padding="same"),
    nn.Conv2d(6, 3, 3, padding="valid"),
    nn.Conv2d(6, 3, 3, padding=1, padding_mode="replicate", bias=False),
]
NOT_FOLDING = [
    nn.Conv2d(6, 3, 3, padding=1),
    nn.Conv2d(6, 3, 3, padding=(0, 1)),
    nn.Conv2d(6, 3, 3, padding="same"),
    nn.ConvTranspose2d(6, 3, 2, stride=2),
    nn.ConvTranspose2d(6, 3, 3, padding=1),
]


@torch.no_grad()
def test_constants_go_into_a_bias_only_where_a_uniform_input_gives_a_uniform_output():
    layers = [*FOLDING, *NOT_FOLDING]
    model = randomise_(Branches(nn.Sequential(nn.Conv2d(4, 6, 3), nn.Sigmoid(), layer) for layer in layers))
    for branch in model:
        branch[0].weight[2:] = 0
    small = removed(model, IMAGES).model
    for i, layer in enumerate(layers):
        expected = 2 if layer in FOLDING else 3  # the two that vary, and one carrier
        assert small.get_submodule(f"{i}.0").out_channels == expected, layer


@pytest.mark.parametrize("dimensions", [1, 3])
def test_convolutions_in_one_and_three_dimensions(dimensions):
    convolution = {1: nn.Conv1d, 3: nn.Conv3d}[dimensions]
    transposed = {1: nn.ConvTranspose1d, 3: nn.ConvTranspose3d}[dimensions]
    layers = [convolution(2, 6, 3), nn.Tanh(), transposed(6, 5, 2), nn.ReLU(), convolution(5, 3, 1)]
    model = randomise_(nn.Sequential(*layers))
    with torch.no_grad():
        model[0].weight[:3] = 0
        model[4].weight[:, :2] = 0
    small = removed(model, torch.randn(2, 2, *[6] * dimensions).double()).model
    assert small[2].in_channels == 4
    assert small[2].out_channels == 3


@torch.no_grad()
def test_groups_that_stay_have_equally_many_channels():
    depthwise = nn.Sequential(nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, 12, 3, groups=6), nn.Conv2d(12, 2, 1))
    grouped = nn.Sequential(nn.Conv2d(4, 12, 1), nn.ReLU(), nn.Conv2d(12, 9, 3, groups=3), nn.Conv2d(9, 2, 1))
    backward = nn.ConvTranspose2d(8, 6, 3, groups=2)
    transposed = nn.Sequential(nn.Conv2d(4, 8, 1), nn.Sigmoid(), backward, nn.Conv2d(6, 2, 1))
    model = randomise_(Branches([depthwise, grouped, transposed]))
    depthwise[3].weight[:, :4] = 0  # two channels with both of their outputs
    grouped[3].weight[:, :3] = 0  # the whole first group
    grouped[3].weight[:, 3:5] = 0  # and two outputs of the second: it keeps as many as the third
    transposed[0].weight[[1, 2, 5, 6]] = 0  # two of four inputs of each group: one of them carries the other
    transposed[3].weight[:, [0, 3]] = 0  # an output of each group, the same in both
    small = removed(model, IMAGES).model
    found = [small.get_submodule(f"{i}.2") for i in range(3)]
    numbers = [(layer.groups, layer.in_channels, layer.out_channels) for layer in found]
    assert numbers == [(4, 4, 8), (2, 8, 6), (2, 6, 4)]


@torch.no_grad()
def test_a_layer_counts_by_what_it_computes():
    class Doubled(nn.Linear):
        def forward(self, x):
            return super().forward(2 * x)

    normalised = nn.utils.parametrizations.weight_norm(nn.Linear(6, 3))
    model = Branches(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), layer) for layer in (normalised, Doubled(6, 3)))
    for branch in model:
        branch[0].weight[:3] = 0
    removal = removed(model, torch.randn(2, 4).double())
    assert shapes(removal.model)["0.0.weight"] == (6, 4)
    assert shapes(removal.model)["1.0.weight"] == (3, 4)
    assert "its weight is computed in the forward" in removal.left.values()
    assert not any("Doubled" in reason for reason in removal.left.values())


@torch.no_grad()
def test_an_embedding_loses_the_columns_that_nothing_reads():
    model = nn.Sequential(nn.Embedding(7, 6), nn.Linear(6, 3))
    model[0].weight[:, 1] = 0.5  # a constant
    model[1].weight[:, 4] = 0
    small = removed(model, torch.randint(7, (2, 5))).model
    assert (small[0].embedding_dim, small[1].in_features) == (4, 4)
    assert small[0].num_embeddings == 7


class Contracted(nn.Module):
    """Products with matrices that are plain parameters, inputs first or last."""

    def __init__(self, contract, shape):
        super().__init__()
        self.contract = contract
        self.first, self.last = nn.Linear(4, 6), nn.Linear(5, 2)
        self.own, self.shift = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(5))
        randomise_(self)
        with torch.no_grad():
            self.first.weight[0] = 0
            self.last.weight[:, 4] = 0
            self.own.index_fill_(shape.index(6), torch.tensor([2, 3]), 0.0)

    def forward(self, x):
        return self.last(self.contract(self.first(x), self.own, self.shift))


def test_products_with_a_parameter_have_inputs_and_outputs():
    cases = [
        (lambda x, own, shift: x @ own, (6, 5)),
        (lambda x, own, shift: torch.mm(x, own), (6, 5)),
        (lambda x, own, shift: torch.addmm(shift, x, own), (6, 5)),
        (lambda x, own, shift: torch.einsum("bi,io->bo", x, own), (6, 5)),
        (lambda x, own, shift: torch.einsum("bi,oi->bo", x, own), (5, 6)),
        (lambda x, own, shift: torch.einsum("bi,oi->ob", x, own).t(), (5, 6)),
    ]
    for contract, shape in cases:
        removal = removed(Contracted(contract, shape), torch.randn(2, 4).double())
        assert removal.model.get_submodule("first").out_features == 4
        assert sorted(removal.model.get_parameter("own").shape) == [4, 4]
        assert set(removal.left) <= {"first"}, "a constant stays if the parameter has no bias behind it"


@pytest.mark.parametrize(
    ("contract", "shape"),
    [
        (lambda x, own, shift: torch.einsum("bi,io->b", x[:, 0, 0], own).unsqueeze(1) + shift, (6, 5)),
        (lambda x, own, shift: torch.einsum("bsti,io->bso", x, own), (6, 5)),
        (lambda x, own, shift: torch.einsum("bsii,io->bso", x, own), (6, 5)),
        (lambda x, own, shift: torch.einsum("bitc,co->btio", x.movedim(3, 1), own).sum(3)[:, :5].sum(2), (6, 5)),
    ],
    ids=["outputs are summed", "positions are summed", "a diagonal", "channels move"],
)
def test_other_contractions_keep_everything(contract, shape):
    removal = removed(Contracted(contract, shape), torch.randn(2, 6, 6, 4).double())
    assert removal.model.get_submodule("first").out_features == 6
    assert "forward" not in removal.left, "nothing was tried that the comparison had to refuse"


class Mixer(nn.Module):
    """Two layers over channels, and between them layers that mix positions."""

    def __init__(self, mix, *, bias: bool = True) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6, bias=False), nn.Linear(6, 2)
        self.wide, self.narrow = nn.Linear(5, 7, bias=bias), nn.Linear(7, 5, bias=bias)
        self.mix = mix

    def forward(self, x):
        return self.last(self.mix(self, self.first(x)))


MIXING_POSITIONS = [
    lambda net, x: net.narrow(net.wide(x.transpose(1, 2)).relu()).transpose(1, 2),
    lambda net, x: x + net.narrow(net.wide(x.permute(0, 2, 1))).permute(0, 2, 1),
]


@pytest.mark.parametrize("sides", ["read", "written"])
@pytest.mark.parametrize("bias", [True, False])
def test_channels_go_through_a_layer_that_mixes_positions(sides, bias):
    x = torch.randn(3, 5, 4).double()
    for mix in MIXING_POSITIONS:
        model = randomise_(Mixer(mix, bias=bias))
        with torch.no_grad():
            if sides == "read":
                model.last.weight[:, [1, 3]] = 0
            else:
                model.first.weight[[1, 3]] = 0
        small = removed(model, x).model
        # a channel that is zero stays zero without a bias, and becomes another constant for each position with one
        assert small.first.out_features == (6 if sides == "written" and bias else 4)
        assert (small.wide.weight.shape, small.narrow.weight.shape) == ((7, 5), (5, 7))


class JoinedBias(nn.Module):
    """A bias of two parameters, as for queries and values in BEiT."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 6, bias=False), nn.Linear(6, 2)
        self.a = nn.Parameter(torch.zeros(4))
        self.register_buffer("b", torch.ones(2), persistent=False)

    def forward(self, x):
        return self.last(nn.functional.linear(x, self.first.weight, torch.cat((self.a, self.b))).relu())


@torch.no_grad()
def test_a_bias_of_several_parameters_becomes_smaller_with_its_product():
    model = randomise_(JoinedBias())
    model.last.weight[:, [0, 5]] = 0
    model.first.weight[1], model.a[1] = 0, -1.0
    removal = removed(model, torch.randn(3, 4).double())
    assert isinstance(removal.model, JoinedBias)
    assert (removal.model.first.weight.shape[0], len(removal.model.a), len(removal.model.b)) == (3, 2, 1)
    model.double().eval()
    program = make_plan(trace(model, (torch.randn(3, 4).double(),)), model).program  # a new forward
    small, x = apply_plan_(program, copy.deepcopy(model)), torch.randn(5, 4).double()
    assert small.get_submodule("first").weight.shape[0] == 3
    torch.testing.assert_close(small(x), model(x))
