import pytest
import torch
from torch import nn

from vbdrop.analysis.graph import TraceError, arguments_of, is_tensor, size_of, trace


def operations(traced):
    return [node for node in traced.graph.nodes if node.op == "call_function"]


def test_placeholders_have_the_names_of_parameters_and_buffers():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    traced = trace(model, (torch.zeros(3, 1, 5, 5),))
    assert set(traced.names.values()) == set(model.state_dict())


@pytest.mark.parametrize("batch", [1, 3])
def test_the_batch_may_have_any_size_even_if_the_example_has_one(batch):
    traced = trace(nn.Linear(4, 2).eval(), (torch.zeros(batch, 4),))
    (node,) = operations(traced)
    assert isinstance(node.meta["val"].shape[0], torch.SymInt)
    assert size_of(node) == (traced.batch, 2)


def test_an_example_without_a_batch_is_traced_as_it_is():
    traced = trace(nn.Conv2d(1, 2, 3).eval(), (torch.zeros(1, 6, 6),))  # one image, not a batch of one
    (node,) = operations(traced)
    assert size_of(node) == (2, 4, 4)


def test_nested_inputs_and_outputs_are_named():
    class Net(nn.Module):
        def forward(self, x, *rest, options=None, scale=2.0):
            return {"sum": x + rest[0] + options["a"][1], "many": (x * scale, [rest[1]])}

    x = torch.zeros(3, 2)
    traced = trace(Net().eval(), (x, x, x), {"options": {"a": [x, x]}, "scale": 3.0})
    assert [argument.name for argument in traced.inputs] == ["x", "rest_0", "rest_1", "options", "scale"]
    assert is_tensor(traced.inputs[3].tree["a"][1])
    assert traced.inputs[4].tree == 3.0
    assert len(traced.results) == 3
    assert list(traced.output) == ["sum", "many"]


def test_arguments_have_the_names_of_the_schema_and_its_defaults():
    traced = trace(nn.Conv2d(1, 2, 3, stride=2).eval(), (torch.zeros(3, 1, 6, 6),))
    call = arguments_of(operations(traced)[0])
    assert call["stride"] == [2, 2]
    assert call["groups"] == 1


def test_changes_in_place_become_values():
    class Net(nn.Module):
        def forward(self, x):
            y = x * 2
            y[:, 0] = 0
            y.relu_()
            return y + x

    names = [str(node.target) for node in operations(trace(Net().eval(), (torch.zeros(3, 2),)))]
    assert not any(name.endswith("_.default") for name in names)


def test_a_buffer_that_the_forward_writes_is_an_effect():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.seen += 1
            return x + self.seen

    traced = trace(Counter().eval(), (torch.zeros(3, 2),))
    assert len(traced.effects) == 1
    assert len(traced.results) == 1


def test_what_cannot_be_traced_is_said_in_the_error_alone(capfd):
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(TraceError, match=r"torch.export cannot trace the model: .*data-dependent"):
        trace(Branching().eval(), (torch.zeros(3, 2),))
    assert "forward(" not in capfd.readouterr().err


class Asking(nn.Module):
    """Does something else for some batches."""

    def __init__(self, question):
        super().__init__()
        self.question = question

    def forward(self, x):
        return x - 1 if self.question(x) else x


@pytest.mark.parametrize(
    ("question", "guards"),
    [
        (lambda x: x.shape[0] > 16, {"batch <= 16": 17}),
        (lambda x: x.shape[0] > 2, {"batch > 2": 1}),
        (lambda x: x.shape[0] == 5, {"Ne(batch, 5)": 5}),
        (lambda x: x.shape[0] % 2, {"Eq(Mod(batch, 2), 0)": 1}),
        (lambda x: x.shape[1] > 2, {}),
        (lambda x: x.view(-1, 1).relu().view(x.shape[0], -1) is None, {}),
    ],
)
def test_what_a_forward_asks_about_its_batch_is_known(question, guards):
    assert trace(Asking(question), (torch.zeros(4, 2),)).guards == guards


def test_inputs_of_one_batch_are_no_question():
    class Two(nn.Module):
        def forward(self, x, y):
            return x + y

    assert trace(Two(), (torch.zeros(4, 2), torch.zeros(4, 2))).guards == {}
