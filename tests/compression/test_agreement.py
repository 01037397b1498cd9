from collections import OrderedDict

import pytest
import torch
from torch import nn

from vbdrop.compression.agreement import checks, disagreement, outputs_of


class Gives(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, *args, **kwargs):
        return self.value(*args, **kwargs)


X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda x: x * (1 + 1e-5), None),
        (lambda x: x * 1.01, "differs by 0.02, where the largest is 2"),
        (lambda x: x * float("nan"), "differs"),
        (lambda x: x[:1], "shape"),
        (lambda x: (x, x), "2 outputs"),
        (lambda x: x.view(3), "its forward fails"),
        (lambda x: 3, "shape"),
        (lambda x: x.double(), "torch.float64 instead of torch.float32"),
        (lambda x: x.long(), "torch.int64 instead of torch.float32"),
    ],
)
def test_differences_are_said(other, message):
    said = disagreement(Gives(lambda x: x), Gives(other), (X,), {})
    assert said is None if message is None else message in said


def test_rounding_is_allowed_by_precision():
    double = X.double()
    assert disagreement(Gives(lambda x: x), Gives(lambda x: x * (1 + 1e-7)), (double,), {}) is not None
    assert disagreement(Gives(lambda x: x), Gives(lambda x: x * 1.01), (X.half(),), {}) is None


def test_outputs_that_are_not_finite_have_to_be_the_same():
    model = Gives(lambda x: torch.stack([x[0] / 0, x[0] * float("nan"), x[1]]))
    assert disagreement(model, model, (X,), {}) is None
    assert disagreement(model, Gives(lambda x: torch.stack([x[0], x[0], x[1]])), (X,), {}) is not None


def test_outputs_may_be_parameters():
    layer = nn.Linear(2, 2)
    assert disagreement(Gives(lambda x: layer.weight), Gives(lambda x: 2 * layer.weight), (X,), {}) is not None


def test_outputs_that_are_no_floats():
    model = Gives(lambda x: (x.long(), "word"))
    assert disagreement(model, model, (X,), {}) is None
    assert "an integer output differs" in disagreement(model, Gives(lambda x: (x.long() + 1, "word")), (X,), {})
    assert "word" in disagreement(model, Gives(lambda x: (x.long(), "other")), (X,), {})


def test_complex_outputs_are_compared_as_floats():
    model = Gives(lambda x: torch.complex(x, 2 * x))
    assert disagreement(model, Gives(lambda x: (1 + 1e-5) * torch.complex(x, 2 * x)), (X,), {}) is None
    assert "differs by 0.04" in disagreement(model, Gives(lambda x: torch.complex(x, 2.02 * x)), (X,), {})


def test_outputs_in_other_containers_differ():
    model = Gives(lambda x: OrderedDict(logits=x))
    assert disagreement(model, model, (X,), {}) is None
    for other in (lambda x: {"logits": x}, lambda x: OrderedDict(scores=x), lambda x: (x,), lambda x: x):
        assert "in different containers" in disagreement(model, Gives(other), (X,), {})


def test_a_model_is_left_as_it_was():
    class Counter(nn.Module):
        seen = 0

        def forward(self, x):
            self.seen += 1
            return x * self.seen

    model, other = Counter(), Counter()
    assert disagreement(model, other, (X,), {}) is None
    assert all(check.disagreement(other) is None for check in checks(model, (X,), {}))
    assert (model.seen, other.seen) == (0, 0)


def faults(model, other, *args, **kwargs):
    model = model if isinstance(model, nn.Module) else Gives(model)
    return [fault for check in checks(model, args, kwargs) if (fault := check.disagreement(Gives(other)))]


def test_zeros_hide_nothing():
    zeros = torch.zeros(3, 2)
    found = faults(lambda x: x, lambda x: 2 * x, zeros)
    assert len(found) == 2
    assert found[0].endswith("(for noise, 3 in a batch)")
    assert found[1].endswith("(for noise, 1 in a batch)")
    assert not zeros.any()
    assert faults(lambda x, y: x + y, lambda x, y: x + y, zeros, y=zeros) == []


def test_other_batches_than_that_of_the_example_are_tried():
    found = faults(lambda x: x - float(len(x) == 3), lambda x: x, torch.randn(2, 2))
    assert [fault.rpartition("(")[2] for fault in found] == ["for noise, 3 in a batch)"]
    found = faults(lambda x: x - float(len(x) == 1), lambda x: x, torch.randn(2, 2))
    assert [fault.rpartition("(")[2] for fault in found] == ["for noise, 1 in a batch)"]
    sizes = [len(check.args[0]) for check in checks(Gives(lambda x: x), (torch.randn(2, 2),), {}, sizes=[17])]
    assert sizes == [2, 2, 1, 3, 17]


def test_what_has_no_axis_or_another_one_than_the_batch_keeps_its_size():
    taken = checks(Gives(lambda x, y, z: x * z), (torch.randn(4, 2), torch.randn(2, 2), torch.tensor(2.0)), {})
    assert [tuple(len(value) for value in check.args[:2]) for check in taken] == [(4, 2), (4, 2), (1, 2), (3, 2)]


def test_whole_numbers_get_no_noise():
    tokens = torch.tensor([[4, 1], [0, 2]])
    found = checks(nn.Embedding(5, 3), (tokens,), {})
    assert [check.args[0].tolist() for check in found] == [
        [[4, 1], [0, 2]],
        [[4, 1]],
        [[4, 1], [0, 2], [4, 1]],
    ]


def test_inputs_that_the_model_does_not_take_are_left_out():
    assert len(checks(Gives(lambda x: x.view(2, 2)), (torch.zeros(2, 2),), {})) == 2
    positive = checks(Gives(torch.log), (torch.ones(2, 50),), {})  # a logarithm of noise is no number
    assert [check.what for check in positive] == ["the example inputs"]


def test_the_noise_is_the_same_each_time_and_leaves_the_generator_alone():
    state = torch.get_rng_state()
    first, second = ([c.args[0] for c in checks(Gives(lambda x: x), (X[:, None],), {})] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_models_that_draw_random_numbers_draw_the_same_ones_and_the_callers_come_next():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert (
        disagreement(Gives(lambda x: x + torch.randn_like(x)), Gives(lambda x: torch.randn_like(x) + x), (X,), {})
        is None
    )
    assert torch.equal(torch.rand(3), expected)


def test_a_packed_sequence_with_too_many_features_is_refused_though_torch_reads_on_behind_the_weights():
    class Packs(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(12, 8, num_layers=2, batch_first=True)

        def forward(self, x):
            lengths = torch.full((x.shape[0],), x.shape[1])
            return self.rnn(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True))[1][0]

    model = Packs().eval()
    (given,) = outputs_of(model, (torch.randn(3, 5, 12),), {})
    assert given.shape == (2, 3, 8)
    with pytest.raises(ValueError, match="`input` must have 12 features; got 24"):
        outputs_of(model, (torch.randn(3, 5, 24),), {})


def test_a_huge_value_in_all_examples_hides_nothing():
    masked = Gives(lambda x: torch.cat([x, torch.full((len(x), 1), -1e9)], 1))
    other = Gives(lambda x: torch.cat([1.01 * x, torch.full((len(x), 1), -1e9)], 1))
    x = torch.randn(4, 3)
    assert disagreement(masked, masked, (x,), {}) is None
    assert "differs by" in disagreement(masked, other, (x,), {})
    assert "differs by" in disagreement(Gives(lambda x: x + 1000), Gives(lambda x: 1.2 * x + 1000), (x,), {})


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("offset", [0.0, 1.0, 100.0])
def test_a_sum_in_another_order_agrees(dtype, offset):
    torch.manual_seed(0)
    x, shares = torch.randn(5, 40, dtype=dtype), torch.randn(40, 7, dtype=dtype)
    model = Gives(lambda x: x @ shares + offset)
    assert disagreement(model, Gives(lambda x: x.flip(1) @ shares.flip(0) + offset), (x,), {}) is None
    masked = Gives(lambda x: x @ shares - 3e4)
    assert disagreement(masked, Gives(lambda x: x.flip(1) @ shares.flip(0) - 3e4), (x,), {}) is None


def test_an_infinite_output_leaves_the_noise_in():
    model = Gives(lambda x: torch.cat([x, torch.full((len(x), 1), -torch.inf)], 1))
    zeros = torch.zeros(4, 3)
    assert len(checks(model, (zeros,), {})) == 4
    assert faults(model, lambda x: torch.cat([2 * x, torch.full((len(x), 1), -torch.inf)], 1), zeros)
    assert "infinity" in disagreement(model, Gives(lambda x: torch.cat([x, x[:, :1]], 1)), (zeros,), {})


class Leaky(nn.Module):
    """Keeps what it has seen."""

    def __init__(self, share):
        super().__init__()
        self.share, self.seen = share, None

    def forward(self, x):
        self.seen = x if self.seen is None else self.share * self.seen + x
        return self.seen


def test_a_state_is_compared_in_a_second_call():
    model, x = Leaky(0.9), torch.randn(4, 3)
    found = checks(model, (x,), {})
    assert [check.what for check in found[-2:]] == [
        "noise, 1 in a batch, in a second call",
        "noise, 3 in a batch, in a second call",
    ]
    assert all(check.disagreement(Leaky(0.9)) is None for check in found)
    said = [check.disagreement(Leaky(0.5)) for check in found]
    assert said[0] is None
    assert any(each and each.endswith("in a second call)") for each in said)
    assert model.seen is None
    assert len(checks(nn.Identity(), (x,), {})) == 4


def test_a_mask_without_padding_is_also_tried_with_some():
    x, none = torch.randn(4, 3), torch.zeros(4, 3, dtype=torch.bool)
    found = faults(lambda x, mask: x.masked_fill(mask, 0.0), lambda x, mask: x, x, none)
    assert [fault.rpartition("(")[2] for fault in found] == ["for a mask that is reversed in part)"]
    assert not none.any()
