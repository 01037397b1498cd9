from pathlib import Path

import pytest
import torch
from torch import nn

from vbdrop.exporting.agreement import check_inputs, outputs_of, resized, verify
from vbdrop.exporting.errors import ExportError

PATH = Path("folder/net.onnx")
INPUTS = (torch.randn(2, 4),)


def shifted_by(model: nn.Module, amount: float):
    return lambda inputs: [value + amount for value in outputs_of(model, inputs)]


def test_the_difference_is_the_largest_of_all_batches():
    model = nn.Linear(4, 3)
    assert verify(model, shifted_by(model, 0.0), INPUTS, PATH) == 0.0
    assert verify(model, shifted_by(model, 1e-6), INPUTS, PATH) == pytest.approx(1e-6, rel=0.2)


@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.float16, 2e-2), (torch.bfloat16, 8e-2)],
)
def test_the_tolerance_follows_the_precision_and_the_largest_output(dtype, allowed):
    class Large(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 2), 1000.0, dtype=torch.float64)

    def run(factor):
        return lambda inputs: [value.to(dtype) for value in shifted_by(Large(), 1000 * allowed * factor)(inputs)]

    verify(Large(), run(0.4), INPUTS, PATH)
    with pytest.raises(ExportError, match=r"net\.onnx does not agree with the model.*as large as 1e\+03"):
        verify(Large(), run(4.0), INPUTS, PATH)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_integers_must_be_equal(dtype):
    class Ids(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 2), 90_000)

    def run(amount):
        return lambda inputs: [value.to(dtype) for value in shifted_by(Ids(), amount)(inputs)]

    assert verify(Ids(), run(0), INPUTS, PATH) == 0
    with pytest.raises(ExportError, match=r"the largest difference is 1, at most 0 is allowed"):
        verify(Ids(), run(1), INPUTS, PATH)


@pytest.mark.parametrize("amount", [float("nan"), float("inf")])
def test_what_is_not_finite_does_not_agree(amount):
    model = nn.Linear(4, 3)
    with pytest.raises(ExportError, match="does not agree"):
        verify(model, shifted_by(model, amount), INPUTS, PATH)


def test_a_model_without_a_finite_output_agrees_with_its_equal():
    class Infinite(nn.Module):
        def forward(self, x):
            return torch.full_like(x, torch.inf)

    assert verify(Infinite(), shifted_by(Infinite(), 0.0), INPUTS, PATH) == 0


def test_one_wrong_sample_of_the_batch_is_enough():
    model = nn.Linear(4, 3)

    def run(inputs):
        (value,) = outputs_of(model, inputs)
        value[-1] += 1.0 if len(value) > 1 else 0.0
        return [value]

    with pytest.raises(ExportError, match="does not agree"):
        verify(model, run, INPUTS, PATH)


def test_outputs_of_another_shape_do_not_agree():
    model = nn.Linear(4, 3)
    with pytest.raises(ExportError, match=r"shapes \[\(1, 2\)\], but the model gives \[\(1, 3\)\]"):
        verify(model, lambda inputs: [value[:, :2] for value in outputs_of(model, inputs)], INPUTS, PATH)
    with pytest.raises(ExportError, match=r"shapes \[\(3, 1\)\], but the model gives \[\(1, 3\)\]"):
        verify(model, lambda inputs: [value.T for value in outputs_of(model, inputs)], INPUTS, PATH)


def test_every_output_is_compared_whatever_holds_it():
    class Several(nn.Module):
        def forward(self, x):
            return {"a": x, "b": (x + 1, [x + 2])}

    assert len(outputs_of(Several(), INPUTS)) == 3

    def run(inputs):
        return [inputs[0], inputs[0] + 1, inputs[0] + 2.5]

    with pytest.raises(ExportError, match="does not agree"):
        verify(Several(), run, INPUTS, PATH)


def test_the_checked_inputs_are_one_sample_and_a_varied_batch():
    single, batch = check_inputs((torch.ones(1, 4), torch.tensor([[3, 1]]), torch.tensor(2.0)))
    assert [value.shape for value in single] == [(1, 4), (1, 2), ()]
    assert [value.shape for value in batch] == [(3, 4), (3, 2), ()]
    assert torch.equal(batch[0][0], torch.ones(4))
    assert len({tuple(row.tolist()) for row in batch[0]}) == 3
    assert batch[1].tolist() == [[3, 1]] * 3


def test_checked_integers_are_mixed_but_stay_at_their_position():
    ids = torch.stack([torch.arange(6) % 3, torch.arange(6) % 2 + 10], 1)
    single, batch = (inputs[0] for inputs in check_inputs((ids,)))
    assert single.tolist() == [[0, 10]]
    assert batch[0].tolist() == [0, 10]
    assert batch.dtype == ids.dtype
    assert batch.tolist() != ids[:3].tolist()
    assert set(batch[:, 0].tolist()) <= {0, 1, 2}
    assert set(batch[:, 1].tolist()) <= {10, 11}


def test_samples_are_repeated_or_left_out():
    (value,) = resized((torch.arange(3),), 7)
    assert value.tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert resized((torch.arange(3),), 2)[0].tolist() == [0, 1]


def test_what_cannot_be_run_is_an_error_that_says_why():
    def run(inputs):
        raise RuntimeError("\n  no half precision here\nat some line")

    with pytest.raises(ExportError, match=r"^net\.onnx cannot be run, and was not written: no half precision here$"):
        verify(nn.Linear(4, 3), run, INPUTS, PATH)


def test_a_model_that_cannot_take_the_batch_is_an_error_that_says_why():
    class Single(nn.Module):
        def forward(self, x):
            if len(x) > 1:
                raise ValueError("one at a time")
            return x

    with pytest.raises(
        ExportError, match=r"^the model cannot be compared with net\.onnx, which was not written: one at a time$"
    ):
        verify(Single(), lambda inputs: list(inputs), INPUTS, PATH)


def test_a_model_that_returns_no_tensor_cannot_be_compared():
    class Number(nn.Module):
        def forward(self, x):
            return 3.0

    with pytest.raises(ExportError, match=r"the model returns no tensor to compare net\.onnx with"):
        verify(Number(), lambda inputs: [], INPUTS, PATH)


def test_random_numbers_are_the_same_ones_and_named_if_a_file_has_others():
    class Noisy(nn.Module):
        def forward(self, x):
            return x + torch.randn_like(x)

    assert verify(Noisy(), lambda inputs: outputs_of(Noisy(), inputs), INPUTS, PATH) == 0.0
    with pytest.raises(ExportError, match=r"does not agree.*Nothing was written\. The model draws random numbers"):
        verify(Noisy(), lambda inputs: [Noisy()(*inputs)], INPUTS, PATH)
