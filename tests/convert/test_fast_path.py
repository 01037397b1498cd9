"""The plain model really takes torch's fast path, the converted one never, and both give the right outputs."""

import copy
import io
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from vbdrop import Units, Weights, compress, convert_, deterministic_, load

# torch says so of its own fast path
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")

CONTEXTS = {"grad": nullcontext, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
MODES = {"Weights": (Weights(),), "Weights and Units": (Weights(), Units())}


def layer(**options) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


MODELS = {
    "relu layer": layer,
    "gelu layer": lambda: layer(activation="gelu"),
    "norm-first layer": lambda: layer(norm_first=True),
    "encoder": lambda: nn.TransformerEncoder(layer(), 2),
    "transformer": lambda: nn.Transformer(8, 2, 2, 1, 16, batch_first=True).encoder,
}
by_model = pytest.mark.parametrize("build", MODELS.values(), ids=MODELS)


@pytest.fixture
def fast_calls(monkeypatch) -> list[str]:
    """A note for every call of torch's fused encoder layer, which still runs."""
    calls: list[str] = []
    fused = torch._transformer_encoder_layer_fwd

    def noted(*args):
        calls.append("fused")
        return fused(*args)

    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", noted)
    return calls


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Sequences of the lengths 5, 3 and 4, and where their padding is."""
    return torch.randn(3, 5, 8), torch.arange(5) >= torch.tensor([5, 3, 4])[:, None]


@torch.no_grad()
def kill_half_of_linear1_(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.linear1.log_sigma2[:8] = 30.0


def masked_by_hand(model: nn.Module) -> nn.Module:
    """A copy whose dead rows of linear1 are zeros; taken before the conversion."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoderLayer):
            module.linear1.weight.data[:8] = 0.0
    return model


def slowly(model: nn.Module, *args, **options) -> torch.Tensor:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        return model(*args, **options)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@by_model
@pytest.mark.parametrize("modes", MODES.values(), ids=MODES)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
def test_eval_outputs_are_right_with_half_of_linear1_dead(build, modes, padded, fast_calls):
    model = build().eval()
    x, padding = batch()
    options = {"src_key_padding_mask": padding} if padded else {}
    there = ~padding if padded else torch.ones_like(padding)
    with torch.no_grad():
        model(x, **options)
    assert fast_calls, "the plain model takes the fast path, or this test shows nothing"
    fast_calls.clear()
    expected = slowly(masked_by_hand(model), x, **options)[there]
    bypassed = slowly(model, x, **options)[there]
    convert_(model, *modes)
    kill_half_of_linear1_(model)
    for context in CONTEXTS.values():
        with context():
            found = model(x, **options)[there]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
        assert (found - bypassed).abs().max() > 1e-3
    assert not fast_calls


@by_model
def test_the_fast_path_is_open_again_afterwards(build, fast_calls):
    model = build().eval()
    x, padding = batch()
    before = [dict(module.__dict__) for module in model.modules()]
    convert_(model, Weights())
    kill_half_of_linear1_(model)
    expected = model(x, src_key_padding_mask=padding)[~padding]
    deterministic_(model)
    with torch.no_grad():
        found = model(x, src_key_padding_mask=padding)[~padding]
    assert fast_calls
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for module, attributes in zip(model.modules(), before, strict=True):
        assert list(module.__dict__) == list(attributes)
        assert module.__dict__.get("activation_relu_or_gelu") == attributes.get("activation_relu_or_gelu")
        assert not module.__dict__.get("use_nested_tensor")


def test_an_encoder_with_one_converted_layer_is_right(fast_calls):
    """The other layer keeps its fast path, and gets a padded tensor instead of a nested one."""
    model = nn.TransformerEncoder(layer(), 2).eval()
    x, padding = batch()
    plain = copy.deepcopy(model)
    convert_(model, Weights(filter_fn=lambda module, name: name == "layers.1.linear1"))
    model.layers[1].linear1.log_sigma2.data[:8] = 30.0
    plain.layers[1].linear1.weight.data[:8] = 0.0
    with torch.no_grad():
        found = model(x, src_key_padding_mask=padding)[~padding]
    assert fast_calls == ["fused"]
    torch.testing.assert_close(found, slowly(plain, x, src_key_padding_mask=padding)[~padding], atol=1e-5, rtol=1e-5)


def test_a_second_conversion_does_not_forget_how_it_was():
    model = layer(activation="gelu")
    convert_(model, Weights())
    convert_(model, Units())
    assert not model.activation_relu_or_gelu
    assert deterministic_(model).activation_relu_or_gelu == 2


def test_a_closed_fast_path_stays_closed():
    model = layer(activation=nn.functional.silu)
    convert_(model, Weights())
    assert deterministic_(model).activation_relu_or_gelu == 0


@pytest.mark.parametrize("way", ["deepcopy", "file"])
def test_a_copy_of_a_converted_model_is_right_and_comes_back(way, fast_calls):
    model = layer().eval()
    convert_(model, Weights())
    kill_half_of_linear1_(model)
    if way == "deepcopy":
        twin = copy.deepcopy(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    x, _ = batch()
    with torch.no_grad():
        assert torch.equal(twin(x), model(x))
        assert not fast_calls
        torch.testing.assert_close(deterministic_(twin)(x), model(x), atol=1e-5, rtol=1e-5)
    assert fast_calls


def test_an_encoder_built_of_a_converted_layer_is_right(fast_calls):
    block = layer()
    convert_(block, Weights())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = nn.TransformerEncoder(block, 2).eval()
    assert "activation_relu_or_gelu was not True" in str(caught[0].message)
    kill_half_of_linear1_(model)
    x, padding = batch()
    expected = model(x, src_key_padding_mask=padding)[~padding]
    with torch.inference_mode():
        torch.testing.assert_close(model(x, src_key_padding_mask=padding)[~padding], expected)
    assert not fast_calls


class Averaged(nn.Module):
    """Reads padded positions, too, which torch's nested tensors make zero."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(layer(), 2)

    def forward(self, x, padding):
        return self.encoder(x, src_key_padding_mask=padding).mean(1)


@pytest.mark.parametrize("padded", [True, False])
def test_padded_positions_are_the_same_in_the_small_model_even_if_the_example_has_none(padded, tmp_path):
    torch.manual_seed(0)
    model = Averaged().eval()
    convert_(model, Weights())
    kill_half_of_linear1_(model)
    x, padding = batch()
    small = compress(model, (x, padding if padded else torch.zeros_like(padding)))
    assert type(small.model) is Averaged
    assert small.model.encoder.layers[0].linear1.out_features == 8
    small.save(tmp_path / "small.safetensors")
    with torch.no_grad():
        for other in (small.model, load(tmp_path / "small.safetensors", model=Averaged())):
            torch.testing.assert_close(other(x, padding), model(x, padding), atol=1e-5, rtol=1e-5)
