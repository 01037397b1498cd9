import pytest
import torch
from torch import nn


@pytest.mark.parametrize("biased", [True, False])
def test_a_product_is_the_map_of_the_torch_layer(case, biased):
    a = case.arguments()
    bias = a.bias if biased else None
    dims = len(case.x) - 2
    product = case.product
    if len(case.weight) == 2:
        expected = nn.functional.linear(a.x, a.theta, bias)
    else:
        name = f"Conv{'Transpose' if product.transposed else ''}{dims}d"
        options = {"output_padding": product.output_padding} if product.transposed else {}
        layer = getattr(nn, name)(
            4,
            6,
            case.weight[2:],
            stride=product.stride,
            padding=product.padding,
            dilation=product.dilation,
            groups=product.groups,
            bias=biased,
            dtype=torch.float64,
            **options,
        )
        parameters = {"weight": a.theta} | ({"bias": a.bias} if biased else {})
        expected = torch.func.functional_call(layer, parameters, (a.x,))
    torch.testing.assert_close(product(a.x, a.theta, bias), expected, rtol=1e-12, atol=1e-12)


def test_a_batch_of_nothing_has_gradients_of_zero(some_case):
    a = some_case.arguments()
    (by_weight,) = torch.autograd.grad(some_case.product(a.x[:0], a.theta).sum(), a.theta)
    assert torch.equal(by_weight, torch.zeros_like(a.theta))


def test_a_product_can_be_compared(case):
    assert len({case.product, case.product}) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_every_product(some_case, dtype):
    a = some_case.arguments(torch.float32)
    with torch.autocast("cpu", dtype):
        assert some_case.product(a.x, a.theta, a.bias).dtype == dtype
        assert some_case.product(a.x.to(dtype), a.theta, a.bias).dtype == dtype, "what an earlier layer gave"
