import pytest
import torch
from torch import nn

from vbdrop.exporting.c_program import Gather, LinearOperation
from vbdrop.exporting.c_reader import read_program
from vbdrop.exporting.errors import ExportError


def model_of(forward) -> nn.Module:
    class Model(nn.Module):
        def forward(self, *inputs):
            return forward(*inputs)

    return Model().eval()


MOVES = {
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0, 0])),
    "index": lambda x: x[:, torch.tensor([1, 2]), 1:],
    "mask": lambda x: x[:, :, :, torch.tensor([0, 3])],
    "transpose": lambda x: x.transpose(1, 3),
    "permute": lambda x: x.permute(0, 2, 3, 1),
    "split": lambda x: torch.cat([part.flatten(1) for part in x.split([1, 2], 1)[::-1]], 1),
    "chunk": lambda x: torch.cat(x.chunk(2, 3), 2),
    "flip": lambda x: x.flip(-1),
    "roll": lambda x: x.roll(1, 2),
    "select": lambda x: x.select(2, 1),
    "unbind": lambda x: x.unbind(1)[1],
    "expand": lambda x: x[:, :1].expand(-1, 5, -1, -1),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "pixel_shuffle": lambda x: nn.functional.pixel_shuffle(x.repeat(1, 4, 1, 1), 2),
    "stack": lambda x: torch.stack([x, -x], 1),
    "views": lambda x: x.reshape(x.shape[0], -1, 2).squeeze(1).unsqueeze(2).view(x.shape[0], -1),
}


def test_a_model_that_cannot_be_traced_is_an_error_that_says_why():
    with pytest.raises(ExportError, match=r"torch\.export cannot trace the model: .*data-dependent"):
        read_program(model_of(lambda x: x * 2 if x.sum() > 0 else x), torch.ones(2, 3))


def test_values_move_as_torch_moves_them(as_c):
    x = torch.arange(72.0).reshape(2, 3, 3, 4)
    model = model_of(lambda x: torch.cat([move(x).flatten(1) for move in MOVES.values()], 1))
    assert torch.equal(as_c(model, x), model(x))


@pytest.mark.parametrize(
    "parts",
    [lambda x: x.chunk(2, 1), lambda x: x.split([2, 4], 1)[::-1], lambda x: x.unbind(1)],
    ids=["chunk", "split", "unbind"],
)
def test_a_model_can_take_values_apart_twice(as_c, parts):
    model = model_of(lambda x: torch.cat([part.flatten(1) for y in (x, x.flip(1), -x) for part in parts(y)[1:]], 1))
    x = torch.arange(36.0).reshape(2, 6, 3)
    assert torch.equal(as_c(model, x), model(x))


def test_views_dropout_and_casts_need_no_operation():
    model = nn.Sequential(
        nn.Flatten(), nn.Dropout(), nn.Identity(), nn.Unflatten(1, (4, 3)), nn.Flatten(), nn.Linear(12, 2)
    )
    (linear,) = read_program(model.eval(), torch.zeros(5, 3, 4)).operations
    assert isinstance(linear, LinearOperation)


def test_constants_are_computed_here():
    class Normed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 3))

        def forward(self, x):
            mask = (torch.arange(3) > 0).float()
            return nn.functional.linear(x, self.weight / self.weight.norm() * mask)

    model = Normed().eval()
    (linear,) = read_program(model, torch.zeros(1, 3)).operations
    expected = model.weight / model.weight.norm() * torch.tensor([0.0, 1.0, 1.0])
    torch.testing.assert_close(torch.from_numpy(linear.weight).float(), expected.detach())


def test_constants_that_take_only_a_shape(difference):
    def forward(x):
        return x * torch.full_like(x, 2.0) + torch.cat([x.new_ones(x.shape[0], 3), torch.zeros_like(x[:, :3])], 1)

    assert difference(model_of(forward), torch.randn(1, 6)) < 1e-6


def test_a_model_that_returns_its_input_copies_it(as_c):
    (copy,) = read_program(nn.Identity(), torch.zeros(1, 4)).operations
    assert isinstance(copy, Gather)
    assert as_c(nn.Flatten(), torch.ones(2, 3, 1)).tolist() == [[1.0] * 3] * 2


def test_a_model_that_returns_a_constant(as_c):
    model = model_of(lambda x: torch.full((1, 2), 0.5).expand(x.shape[0], 2))
    assert as_c(model, torch.ones(1, 2)).tolist() == [[0.5, 0.5]]


def test_writing_in_place_is_seen_by_later_readers(difference):
    def forward(x):
        y = x * 2
        z = y + 1
        y.relu_()
        return y + z

    assert difference(model_of(forward), torch.randn(2, 6)) < 1e-6


def test_double_precision_is_written_as_single(as_c):
    model = nn.Linear(4, 3).double()
    x = torch.randn(2, 4, dtype=torch.float64)
    torch.testing.assert_close(as_c(model, x).double(), model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("forward", "reason"),
    [
        (lambda x: (x, x + 1), "one output; this one has 2"),
        (lambda x: x[0], "it moves the batch axis"),
        (lambda x: x.reshape(-1), "it moves the batch axis"),
        (lambda x: x + torch.rand(2), "it is random"),
        (lambda x: torch.gather(x, 1, (x > 0).long()), r"aten\.gt|aten\.gather"),
        (lambda x: x[:, x[0].argmax() :], "."),
        (lambda x: 3.0, r"return a tensor; this one returns 3\.0"),
        (lambda x: None, "return a tensor; this one returns None"),
        (lambda x: x.view(torch.int32).float(), "reads the bits of the values as another type"),
        (
            lambda x: nn.functional.max_pool2d(x[:, None], 2, return_indices=True)[1].float(),
            r"aten\.max_pool2d_with_indices.*uses more than its first output",
        ),
    ],
    ids=[
        "two outputs",
        "first sample",
        "flat batch",
        "random",
        "chosen by values",
        "data-dependent",
        "number",
        "nothing",
        "bits",
        "indices",
    ],
)
def test_what_cannot_be_written_says_why(forward, reason):
    with pytest.raises(Exception, match=reason) as caught:
        read_program(model_of(forward), torch.ones(2, 2, 2) if "max_pool" in reason else torch.ones(2, 2))
    assert isinstance(caught.value, ExportError)


def test_a_constant_that_the_input_looks_up_is_refused():
    table = torch.tensor([0.0, 2.0, 3.0, 1.0])
    with pytest.raises(ExportError, match="it looks up a constant by the model's input"):
        read_program(model_of(lambda x: table[x]), torch.zeros(2, 4, dtype=torch.long))


@pytest.mark.parametrize(
    ("forward", "dtype"),
    [
        (lambda x: x - 128, torch.uint8),
        (lambda x: x * 2 / 255, torch.uint8),
        (lambda x: x * x, torch.int8),
        (lambda x: -x, torch.int8),
        (lambda x: x.sum(1, dtype=torch.uint8), torch.uint8),
        (lambda x: x + x, torch.bool),
    ],
    ids=["shift", "scale", "product", "negative", "sum", "bool"],
)
def test_computing_with_integers_is_refused(forward, dtype):
    with pytest.raises(ExportError, match="it computes with integers or bools; convert them to floats"):
        read_program(model_of(lambda x: forward(x).float()), torch.ones(2, 3, dtype=dtype))


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.float() * 2 - 128,
        lambda x: x / 255,
        lambda x: x * 0.5,
        lambda x: torch.cat([x.flip(1), x], 1).float(),
        lambda x: x.float() + (torch.ones_like(x) - 2),
    ],
    ids=["cast", "divided", "scaled", "moved", "constant"],
)
def test_integers_that_become_floats_can_be_written(as_c, forward):
    x = torch.tensor([[0, 100, 200], [255, 3, 128]], dtype=torch.uint8)
    torch.testing.assert_close(as_c(model_of(forward), x), forward(x))
