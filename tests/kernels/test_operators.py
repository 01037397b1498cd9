"""The kernels as operators: their registrations, by torch's own check, and a compiled step against an eager one."""

import pytest
import torch
import torch.nn.functional as F
from tests.stress import count
from torch import nn

from vbdrop import ELBO, Rates, Units, Weights, convert_
from vbdrop.kernels import KLTerm, kl_total, operators
from vbdrop.kernels.kl import FUSED_BELOW
from vbdrop.priors import Hierarchical, LogUniform


@pytest.fixture(autouse=True)
def _kernels(products):
    """They are there, with products of their own."""


def leaf(*shape):
    return torch.randn(shape, requires_grad=True)


def channels_last(*shape):
    return torch.rand(shape).to(memory_format=torch.channels_last).requires_grad_()


@pytest.mark.parametrize(
    ("operator", "arguments", "draws"),
    [
        ("kl", (leaf(7, 5), leaf(7, 5), "vbdrop_kl", 0.5), False),
        ("kl", (leaf(7, 5), leaf(7, 5), "vbdrop_log_uniform_kl", 1.0), False),
        ("posterior", (leaf(7, 5), leaf(7, 5), 20.0), False),
        (
            "posterior_backward",
            (*(torch.rand(7, 5) for _ in range(2)), 20.0, *(torch.randn(7, 5) for _ in range(2))),
            False,
        ),
        ("perturbed", (leaf(7, 5), torch.rand(7, 5, requires_grad=True)), True),
        ("perturbed", (channels_last(2, 5, 3, 3), channels_last(2, 5, 3, 3)), True),
        ("perturbed", (channels_last(2, 5, 3, 3), torch.rand(2, 5, 3, 3)), True),
        ("perturbed", (leaf(2, 5, 3, 3), channels_last(2, 5, 3, 3), torch.randn(2, 5, 3, 3)), False),
        ("posterior", (channels_last(2, 5, 3, 3), leaf(2, 5, 3, 3), 20.0), False),
        ("kl", (leaf(2, 5, 3, 3), channels_last(2, 5, 3, 3), "vbdrop_kl", 0.5), False),
        ("noisy_linear", (leaf(4, 5), leaf(7, 5), leaf(7, 5), None, leaf(7), 20.0), True),
        ("noisy_linear", (leaf(4, 5), leaf(7, 5), leaf(7, 5), None, None, 20.0, torch.randn(4, 7)), False),
        ("noisy_linear", (leaf(4, 5), leaf(7, 5), None, leaf(5), None, 0.0), True),
        ("noisy_linear", (torch.randn(4, 5), leaf(7, 5), leaf(7, 5), None, None, 20.0), True),
        ("gate", (leaf(4, 5, 3, 2), leaf(5), leaf(5), 20.0, 6), True),
        ("gate", (leaf(4, 5, 3, 2), leaf(5), leaf(5), 20.0, 6, torch.randn(4, 5, 1, 1)), False),
        ("gate", (channels_last(4, 5, 3, 2), leaf(5), leaf(5), 20.0, 6), True),
        ("gated_linear", (leaf(4, 5), leaf(5), leaf(5), leaf(7, 5), leaf(7), 20.0), True),
    ],
)
def test_registrations_pass_torchs_check(operator, arguments, draws):
    tests = ("test_schema", "test_autograd_registration", "test_faketensor") if draws else None
    options = {} if tests is None else {"test_utils": tests}
    found = torch.library.opcheck(getattr(torch.ops.vbdrop, operator).default, arguments, **options)
    assert set(found.values()) == {"SUCCESS"}


def network(*modes):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(5, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 16, 8), nn.ReLU(), nn.Linear(8, 3))
    convert_(model, *modes)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "log_" in name:
                p.uniform_(-6, 0)
    return model


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.*should not be instantiated")  # torch's own compiler
@pytest.mark.stress
@pytest.mark.parametrize("need_x", [True, False][: count(1, 2)])
@pytest.mark.parametrize(
    "modes", [[Weights("log_uniform"), Units()], [Rates("unit")], [Weights()], [Units()]][: count(2, 4)], ids=str
)
def test_a_compiled_step_draws_and_learns_what_an_eager_one_does(modes, need_x):
    torch.compiler.reset()
    model = network(*modes)
    elbo = ELBO(model, n_train=50)
    x, y = torch.randn(4, 5, 6, 6, requires_grad=need_x), torch.tensor([0, 1, 2, 0])
    programs = []

    def backend(graph, inputs):
        programs.append({str(node.target).split(".")[0] for node in graph.graph.nodes if node.op == "call_function"})
        return graph.forward

    def loss_of(x, y):
        return elbo(F.cross_entropy(model(x), y))

    results = []
    for function in (
        loss_of,
        torch.compile(loss_of, fullgraph=True, backend=backend),
        torch.compile(loss_of, fullgraph=True, backend="aot_eager"),
    ):
        model.zero_grad()
        torch.manual_seed(5)
        loss = function(x, y)
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert "vbdrop" in programs[0], "the compiled step calls the kernels"
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(results[2], results[0], rtol=1e-5, atol=1e-6)


def test_what_is_not_contiguous_is_read_as_what_it_stands_for():
    theta, log_sigma2 = torch.randn(5, 7), torch.randn(5, 7)
    found = torch.ops.vbdrop.posterior(theta.T, log_sigma2.T, 20.0)
    expected = operators.posterior(theta.T.contiguous(), log_sigma2.T.contiguous(), 20.0)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("orders", ["same", "other"])
def test_images_stay_in_the_order_that_a_compiler_has_chosen_for_them(orders):
    """Compiled convolutions are channels last: turning their outputs around takes longer than sampling them."""
    mean, noise = channels_last(2, 5, 3, 3).detach(), torch.randn(2, 5, 3, 3)
    variance = torch.rand(2, 5, 3, 3)
    if orders == "same":
        variance = variance.to(memory_format=torch.channels_last)
    out, slope = torch.ops.vbdrop.perturbed(mean, variance, noise)
    assert out.stride() == slope.stride() == mean.stride()
    torch.testing.assert_close(out, mean + variance.sqrt() * noise)
    torch.testing.assert_close(slope, 0.5 * noise / variance.sqrt())


@pytest.mark.parametrize("prior", [Hierarchical(), LogUniform()], ids=lambda prior: type(prior).__name__)
@pytest.mark.parametrize("size", [FUSED_BELOW - 1, FUSED_BELOW])
def test_the_kl_of_many_weights_is_an_operator_that_of_few_a_formula(prior, size):
    torch.compiler.reset()
    tensors = [torch.randn(size, requires_grad=True), torch.randn(size, requires_grad=True)]
    called = []

    def backend(graph, inputs):
        called.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    def total():
        return kl_total([KLTerm(prior, 2.0)], tensors)[0]

    expected = torch.autograd.grad(total(), tensors)
    found = torch.autograd.grad(torch.compile(total, fullgraph=True, backend=backend)(), tensors)
    assert any("vbdrop.kl" in target for target in called) == (size >= FUSED_BELOW)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
