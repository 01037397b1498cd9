import copy
import operator
import pickle
from collections import OrderedDict

import pytest
import torch
from tests.compression.nets import NETS, randomise_, removed
from torch import fx, nn

from vbdrop.analysis.graph import trace
from vbdrop.compression import compress, load
from vbdrop.compression.make_plan import make_plan
from vbdrop.compression.rewriting.apply_plan import apply_plan_


class Structured(nn.Module):
    """Inputs and outputs in containers, by position and by name."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(40, 6), nn.Linear(6, 2)

    def forward(self, pair, *, extra=None):
        x = pair["a"] + pair["b"][1]
        hidden = torch.relu(self.first(x)) + extra
        logits = self.last(hidden)
        return {"logits": logits, "rest": [hidden, None, (x, 3)]}


@torch.no_grad()
def test_structures_and_names_of_inputs_and_outputs_stay():
    model = randomise_(Structured()).double()
    model.first.weight[:, :20] = 0
    tensors = [torch.randn(3, 40).double() for _ in range(3)]
    args, kwargs = ({"a": tensors[0], "b": [tensors[1], tensors[2]]},), {"extra": torch.randn(3, 1).double()}
    draft = make_plan(trace(model, args, kwargs), model)
    small = apply_plan_(draft.program, copy.deepcopy(model))
    assert isinstance(small, fx.GraphModule)
    assert small.first.in_features == 20
    found, expected = small(*args, **kwargs), model(*args, **kwargs)
    torch.testing.assert_close(found["logits"], expected["logits"])
    torch.testing.assert_close(found["rest"][0], expected["rest"][0])
    assert found["rest"][1] is None
    assert found["rest"][2][1] == 3


class Named(Structured):
    """Outputs in a container of another kind."""

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return OrderedDict(logits=self.last(hidden), rest=hidden.sum(1))


def test_a_forward_that_returns_a_container_of_another_class_is_not_replaced():
    model, x = randomise_(Named()), torch.randn(3, 40)
    with torch.no_grad():
        model.first.weight[:, :20] = 0
    draft = make_plan(trace(model, (x,)), model)
    assert draft.program is None
    assert draft.left["forward"] == "it cannot be replaced: an output is a OrderedDict, which a graph cannot return"
    small = compress(model, x).model
    assert type(small) is Named
    assert type(small(x)) is OrderedDict


def test_a_graph_calls_modules_by_name_and_holds_nothing_of_this_package():
    model = randomise_(NETS["resnet"].build())
    with torch.no_grad():
        model.blocks[1].conv2[0].weight.zero_()
        model.blocks[0].conv1[0].weight[:, :4] = 0
    small, plan, _ = removed(model, torch.randn(2, 3, 8, 8).double())
    assert isinstance(small, fx.GraphModule)
    called = {node.target for node in small.graph.nodes if node.op == "call_module"}
    assert {"stem.0", "stem.1", "blocks.0.conv1.0", "head"} <= called
    assert not any(name.startswith("blocks.1") for name in called)
    assert all(name.startswith("blocks.1") for name in plan.program.removed)
    assert not any(type(module).__module__.startswith("vbdrop") for module in small.modules())
    functions = {node.target for node in small.graph.nodes if node.op == "call_function"}
    assert all(str(function).startswith("aten.") or function is operator.getitem for function in functions)
    assert type(small).__name__ == "ResNet"


def test_a_graph_can_be_copied_pickled_traced_and_trained():
    model = randomise_(NETS["lenet5"].build())
    with torch.no_grad():
        model.conv2.weight[:4] = 0
    x = torch.randn(2, 1, 28, 28).double()
    small = removed(model, x).model
    expected = small(x)
    assert torch.equal(copy.deepcopy(small)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(small))(x), expected)
    batch = torch.export.Dim("batch")
    program = torch.export.export(small, (x,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(program.module()(x), expected)
    small.train()
    small(x).sum().backward()
    assert all(parameter.grad is not None for parameter in small.parameters())


@torch.no_grad()
def test_a_forward_that_writes_buffers_is_not_replaced():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(40, 6), nn.Linear(6, 2)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            return self.last(torch.relu(self.first(x)))

    model = randomise_(Counting())
    model.first.weight[:, :20] = 0
    model.last.weight[:, 0] = 0
    draft = make_plan(trace(model, (torch.randn(2, 40),)), model)
    assert draft.program is None
    assert "buffers" in draft.left["forward"]


class Asking(nn.Module):
    """A forward with a branch."""

    def __init__(self, question):
        super().__init__()
        self.question, self.first, self.last = question, nn.Linear(40, 6), nn.Linear(6, 2)

    def forward(self, x, options=None):
        y = self.last(torch.relu(self.first(x)))
        return 2 * y if self.question(x, options) else y


@torch.no_grad()
@pytest.mark.parametrize(
    ("question", "inputs", "reason"),
    [
        (lambda x, _: x.shape[0] > 16, (), "a batch of 17 takes another branch of it, since it asks for batch <= 16"),
        (
            lambda _, flag: flag,
            (False,),
            "`options` holds False, and a graph would always use that value",
        ),
        (lambda _, flags: flags["b"], ({"a": torch.zeros(2), "b": None},), "`options` holds None"),
    ],
)
def test_a_forward_that_may_take_another_way_is_not_replaced(question, inputs, reason):
    model = randomise_(Asking(question))
    model.first.weight[:, :20] = 0
    draft = make_plan(trace(model, (torch.randn(2, 40), *inputs)), model)
    assert draft.program is None
    assert not draft.keeps_forward
    assert reason in draft.left["forward"]


class Sum(nn.Module):
    """Needs a new forward: one of two terms has channels that the other lacks."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 12, bias=False), nn.Linear(6, 12, bias=False), nn.Linear(12, 2)
        with torch.no_grad():
            self.a.weight[:8] = 0
            self.b.weight[4:] = 0

    def forward(self, x, y=None, z=None):
        other = x if y is None else y
        return self.c(torch.relu(self.a(x)) + torch.relu(self.b(other if z is None else other + z)))


@torch.no_grad()
def test_arguments_keep_their_order_whatever_that_of_the_example():
    model, x, y = Sum().eval(), torch.randn(3, 6), torch.randn(3, 6)
    small = compress(model, {"y": y, "x": x}, rewrite_gain=0.0).model
    assert isinstance(small, fx.GraphModule)
    torch.testing.assert_close(small(x, y), model(x, y))


@torch.no_grad()
def test_an_argument_never_takes_the_place_of_one_that_the_example_skips(tmp_path):
    model, x, z = Sum().eval(), torch.randn(3, 6), torch.randn(3, 6)
    compressed = compress(model, {"x": x, "z": z}, rewrite_gain=0.0)
    compressed.save(tmp_path / "sum.safetensors")
    loaded = load(tmp_path / "sum.safetensors", Sum())
    for small in (compressed.model, loaded, pickle.loads(pickle.dumps(compressed.model)), copy.deepcopy(loaded)):
        assert isinstance(small, fx.GraphModule)
        for args, kwargs in (((x,), {"z": z}), ((x, None, z), {}), ((), {"z": z, "x": x})):
            torch.testing.assert_close(small(*args, **kwargs), model(*args, **kwargs))
        for args, kwargs in (((x, z), {}), ((x, z, z), {}), ((x,), {}), ((x,), {"y": z, "z": z})):
            with pytest.raises(RuntimeError, match="the arguments of the example"):
                small(*args, **kwargs)
    again = compress(compressed.model, {"x": x, "z": z}).model
    torch.testing.assert_close(again(x, z=z), model(x, z=z))


class Flagged(nn.Module):
    """An attention whose forward reads its number of heads from an attribute, and takes a flag."""

    def __init__(self):
        super().__init__()
        self.num_heads = 4
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x, causal):
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        found = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out(found.transpose(1, 2).flatten(2))


@torch.no_grad()
def test_a_forward_that_is_not_replaced_loses_its_dead_heads_too():
    model, inputs = randomise_(Flagged()).double(), (torch.randn(3, 5, 8).double(), True)
    model.out.weight[:, 2:6] = 0
    small = compress(model, inputs)
    assert "`causal` holds True" in small.left["forward"]
    assert (type(small.model), small.model.num_heads, small.model.qkv.out_features) == (Flagged, 2, 12)
    for causal in (True, False):
        torch.testing.assert_close(small.model(inputs[0], causal), model(inputs[0], causal))


@pytest.mark.parametrize("rewrite", [True, False])
def test_a_new_forward_has_no_dropout_and_the_summary_says_so(rewrite):
    model, x = (
        randomise_(nn.Sequential(nn.Linear(40, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2))),
        torch.randn(8, 40),
    )
    with torch.no_grad():
        model[0].weight[:, :20] = 0
    small = compress(model, x, rewrite=rewrite)
    trained = small.model.train()
    assert torch.equal(trained(x), trained(x)) is rewrite
    assert ("(no dropout)" in str(small.summary())) is rewrite
