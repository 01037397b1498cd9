from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from vbdrop.layers import NoisyTensor, Variational
from vbdrop.priors import Hierarchical


class Scale(Variational):
    """A module of a user's own: a noisy scale a feature, and a plain shift beside it."""

    wide_parameters = ("weight", "log_sigma2")

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.log_sigma2 = nn.Parameter(torch.full((3,), -4.0))
        self.shift = nn.Linear(3, 3)
        self.register_buffer("seen", torch.zeros(2))
        self.register_parameter("none", None)

    def variational(self) -> Iterator[NoisyTensor]:
        yield NoisyTensor("weight", self.weight, Hierarchical(), 3.0, log_sigma2=self.log_sigma2)

    def forward(self, x: Tensor) -> Tensor:
        return self.shift(x * self.weight.to(x.dtype))


def dtypes(module):
    return {name: p.dtype for name, p in [*module.named_parameters(), *module.named_buffers()]}


@pytest.mark.parametrize(
    ("training", "sampling", "on"),
    [(True, False, True), (True, True, True), (False, True, True), (False, False, False)],
)
def test_noise_is_on_in_training_and_in_sampled_eval(training, sampling, on):
    module = Scale().train(training)
    module.sampling = sampling
    assert module.noise_is_on is on


@pytest.mark.parametrize("narrow", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "cast",
    [
        lambda module, dtype: module.to(dtype),
        lambda module, dtype: module.half() if dtype == torch.float16 else module.bfloat16(),
        lambda module, dtype: module.type(dtype),
        lambda module, dtype: nn.Sequential(module).to(dtype)[0],
        lambda module, dtype: module.double().to(dtype),
    ],
    ids=["to", "half", "type", "nested", "from-double"],
)
def test_variational_parameters_stay_out_of_half_precision(cast, narrow):
    module = Scale()
    module.log_sigma2.data.fill_(-4.00001)  # not a number of half precision
    module = cast(module, narrow)
    assert dtypes(module) == {
        "weight": torch.float32,
        "log_sigma2": torch.float32,
        "shift.weight": narrow,
        "shift.bias": narrow,
        "seen": narrow,
    }
    assert torch.equal(module.log_sigma2, torch.full((3,), -4.00001)), "its value did not pass through half precision"


def test_a_cast_keeps_the_parameter_objects_and_wide_gradients():
    module = Scale()
    before = module.log_sigma2
    module.log_sigma2.grad = torch.full((3,), 1e-9)
    module.shift.weight.grad = torch.ones(3, 3)
    module.to(torch.bfloat16)
    assert module.log_sigma2 is before
    assert module.log_sigma2.grad.dtype == torch.float32
    assert torch.equal(module.log_sigma2.grad, torch.full((3,), 1e-9))
    assert module.shift.weight.grad.dtype == torch.bfloat16


def test_wider_and_back():
    module = Scale().double()
    assert set(dtypes(module).values()) == {torch.float64}
    assert set(dtypes(module.float()).values()) == {torch.float32}


def test_it_moves_to_another_device_and_dtype_at_once():
    module = Scale().to(device="meta", dtype=torch.float16)
    assert {p.device.type for p in module.parameters()} == {"meta"}
    assert (module.log_sigma2.dtype, module.shift.weight.dtype) == (torch.float32, torch.float16)


def test_the_cast_returns_the_module_itself():
    module = Scale()
    assert module.to(torch.bfloat16) is module
