import torch
from tests.compression.nets import randomise_, removed
from torch import nn

from vbdrop.analysis.constant_channels import propagate
from vbdrop.analysis.graph import trace
from vbdrop.analysis.liveness import find_live
from vbdrop.compression import compress
from vbdrop.compression.planning.plan_from_liveness import columns, decide

IMAGES = torch.randn(2, 3, 6, 6).double()


def decided(model: nn.Module, x: torch.Tensor = IMAGES, rewrite: bool = True):
    model = model.double().eval()
    liveness = find_live(propagate(trace(model, (x,)), model, rewrite=rewrite))
    inputs = columns(liveness)
    return decide(liveness, inputs), inputs


@torch.no_grad()
def test_a_constant_goes_into_the_bias_behind_it():
    model = randomise_(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))).double()
    model[0].weight[1] = 0
    plan, _ = decided(model, torch.randn(2, 3).double())
    assert plan.keep == {"0.weight": {0: [0, 2, 3]}, "0.bias": {0: [0, 2, 3]}, "1.weight": {1: [0, 2, 3]}}
    assert plan.attributes == {"0": {"out_features": 3}, "1": {"in_features": 3}}
    torch.testing.assert_close(torch.tensor(plan.add["1.bias"]).double(), model[1].weight[:, 1] * model[0].bias[1])


@torch.no_grad()
def test_without_a_bias_it_goes_into_the_running_mean_or_into_a_new_bias():
    first, norm = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(5)
    model = randomise_(nn.Sequential(first, nn.Conv2d(4, 5, 3, bias=False), norm, nn.Conv2d(5, 2, 1)))
    first.weight[1] = 0
    plan, _ = decided(model)
    assert set(plan.add) == {"2.running_mean"}
    removed(model, IMAGES)
    model = randomise_(nn.Sequential(first, nn.Conv2d(4, 5, 3, bias=False), nn.ReLU(), nn.Conv2d(5, 2, 1)))
    first.weight[1] = 0
    plan, _ = decided(model)
    assert set(plan.add) == {"1.bias"}
    assert "1.bias" not in plan.shapes
    assert removed(model, IMAGES).model[1].bias is not None


@torch.no_grad()
def test_a_running_mean_that_two_layers_share_takes_no_constant():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.a, self.b = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 5, 1, bias=False), nn.Conv2d(3, 5, 1)
            self.norm, self.last = nn.BatchNorm2d(5), nn.Conv2d(5, 2, 1)

        def forward(self, x):
            return self.last(self.norm(self.a(self.first(x)))), self.last(self.norm(self.b(x)))

    model = randomise_(Shared())
    model.first.weight[0] = 0
    plan, _ = decided(model)
    assert set(plan.add) == {"a.bias"}
    removed(model, IMAGES)


@torch.no_grad()
def test_weights_of_constants_are_merged_into_the_carriers():
    model = randomise_(nn.Sequential(nn.Conv2d(3, 5, 1), nn.Conv2d(5, 2, 3, padding=1)))
    model[0].weight[:3] = 0
    model[0].bias[:3] = torch.tensor([0.5, -2.0, 1.0])
    plan, _ = decided(model)
    (merge,) = plan.merge["1.weight"]
    assert (merge.axis, merge.into, merge.source, merge.rows) == (1, 1, [0, 2], (0, 2))
    assert merge.scale == [-0.25, -0.5]
    assert plan.keep["1.weight"] == {1: [1, 3, 4]}


@torch.no_grad()
def test_inputs_that_are_not_read_are_selected_where_that_is_worth_a_copy():
    model = randomise_(nn.Linear(40, 3))
    x = torch.randn(2, 40).double()
    model.weight[:, 0] = 0
    _, inputs = decided(model, x)
    assert not inputs["weight"].selected  # one in forty
    model.weight[:, 1:10] = 0
    _, inputs = decided(model, x)
    assert inputs["weight"].positions().tolist() == list(range(10, 40))
    _, inputs = decided(model, x, rewrite=False)
    assert not inputs["weight"].selected


@torch.no_grad()
def test_a_tied_weight_is_cut_under_all_its_names_and_takes_no_constants():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight
            self.last = nn.Linear(4, 2)

        def forward(self, x):
            return self.last(torch.relu(self.b(torch.relu(self.a(torch.relu(self.first(x)))))))

    model = randomise_(Tied())
    model.a.weight[:, 2] = 0
    model.last.weight[:, 2] = 0
    plan, _ = decided(model, torch.randn(2, 3).double())
    assert plan.keep["a.weight"] == plan.keep["b.weight"] == {0: [0, 1, 3], 1: [0, 1, 3]}
    small = removed(model, torch.randn(2, 3).double()).model
    assert small.a.weight is small.b.weight
    model.first.weight[0] = 0  # a constant for a, but not for b
    assert removed(model, torch.randn(2, 3).double()).model.first.out_features == 3


class Siamese(nn.Module):
    """One weight at two places, with biases of their own if it is tied."""

    def __init__(self, tied: bool):
        super().__init__()
        self.first, self.second, self.a = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
        self.b = self.a
        if tied:
            self.b = nn.Linear(4, 2)
            self.b.weight = self.a.weight

    def forward(self, x):
        return self.a(self.first(x)), self.b(self.second(x))


@torch.no_grad()
def test_a_weight_at_two_places_takes_the_constants_that_are_the_same_at_both():
    x = torch.randn(2, 3).double()
    model = randomise_(Siamese(tied=False))
    model.first.weight[:3] = 0
    model.second.weight[1:3] = 0
    model.second.bias[2] = model.first.bias[2]  # 0 varies at one place, 1 has two values, 2 has one
    small = removed(model, x).model
    assert (small.first.out_features, small.second.out_features, small.a.in_features) == (3, 3, 3)
    assert small.a is small.b


@torch.no_grad()
def test_a_weight_with_two_biases_takes_no_constants_but_zero():
    x = torch.randn(2, 3).double()
    model = randomise_(Siamese(tied=True))
    for layer in (model.first, model.second):
        layer.weight[:2] = 0
        layer.bias[:2] = torch.tensor([0.0, 3.0])
    small = removed(model, x).model
    assert (small.first.out_features, small.a.in_features) == (3, 3)


@torch.no_grad()
def test_a_weight_that_is_used_without_its_bias_takes_no_constants():
    class Unbiased(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x):
            return nn.functional.linear(torch.sigmoid(self.first(x)), self.last.weight)

    model = randomise_(Unbiased())
    model.first.weight[0] = 0
    assert removed(model, torch.randn(2, 3).double()).model.first.out_features == 4


def test_of_the_readers_of_a_stream_one_at_most_selects():
    class Stream(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 10)
            self.readers = nn.ModuleList(nn.Linear(10, width) for width in (3, 9, 5))

        def forward(self, x):
            x = torch.relu(self.first(x))
            return [reader(x) for reader in self.readers]

    model = randomise_(Stream())
    with torch.no_grad():
        for i, reader in enumerate(model.readers):
            reader.weight[:, 3 * i : 3 * i + 3] = 0
    removal = removed(model, torch.randn(2, 4).double())
    assert [removal.model.get_submodule(f"readers.{i}").in_features for i in range(3)] == [10, 7, 10]


@torch.no_grad()
def test_an_instance_norm_without_parameters_gets_its_number_of_channels(recwarn):
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3)).eval()
    model[3].weight[:, :4] = 0
    small = compress(model, torch.randn(2, 3, 8, 8)).model
    small(torch.randn(2, 3, 8, 8))
    assert small[1].num_features == 2
    assert not recwarn.list
