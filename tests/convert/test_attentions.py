import copy

import pytest
import torch
from tests.compression.nets import difference
from torch import nn

import vbdrop
from vbdrop.layers import Gate, OpenAttention, Units

X = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))


class Encoder(nn.Module):
    """The encoder of torch, with its norms in front or behind."""

    def __init__(self, first=True, **options):
        super().__init__()
        self.enter, self.head = nn.Linear(5, 12), nn.Linear(12, 4)
        layer = nn.TransformerEncoderLayer(12, 3, 24, norm_first=first, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(12), enable_nested_tensor=False)

    def forward(self, x):
        return self.head(self.encoder(self.enter(x)).mean(1))


def converted(first):
    torch.manual_seed(0)
    model = Encoder(first).eval()
    plain = copy.deepcopy(model)
    report = vbdrop.convert_(model, Units(), example_inputs=X)
    assert difference(plain, model.eval(), X) < 1e-6
    with torch.no_grad():
        for gate in model.modules():
            if isinstance(gate, Gate):
                gate.weight.uniform_(0.5, 1.5)
                gate.log_sigma2[: len(gate.weight) // 3] = 9.0
    return model, report


@pytest.mark.parametrize("first", [True, False], ids=["norm first", "norm behind"])
def test_heads_and_neurons_of_an_encoder_are_removed_and_the_fast_path_stays_closed(first, tmp_path):
    model, report = converted(first)
    small = vbdrop.compress(model, X)
    width = 8  # of 12, also where the first layer reads the stream in front of any norm
    shapes = {name: tuple(tensor.shape) for name, tensor in small.model.state_dict().items()}
    for layer in ("encoder.layers.0", "encoder.layers.1"):
        assert shapes[f"{layer}.self_attn.in_proj_weight"] == (24, width)
        assert shapes[f"{layer}.self_attn.out_proj.weight"] == (width, 8)
        assert shapes[f"{layer}.linear1.weight"] == (16, width)
        assert shapes[f"{layer}.linear2.weight"] == (width, 16)
    assert report.groups[0].weights > 0.99
    longer = torch.randn(2, 9, 5)
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=Encoder(first))
    with torch.no_grad():  # where torch would take its fast path
        torch.testing.assert_close(small.model(longer), model(longer), rtol=1e-5, atol=1e-5)
        assert torch.equal(loaded(longer), small.model(longer))


def test_an_attention_without_gates_is_closed_again():
    model = Encoder()
    vbdrop.convert_(model, Units(filter_fn=lambda _, name: name == "head"), example_inputs=X)
    assert not any(isinstance(module, OpenAttention) for module in model.modules())


def test_without_example_inputs_an_attention_is_left_alone():
    model = Encoder()
    report = vbdrop.convert_(model, Units())
    assert report.left["encoder.layers.0.self_attn.out_proj"] == "MultiheadAttention uses its weights functionally"
    assert type(model.encoder.layers[0].self_attn) is nn.MultiheadAttention


def test_a_conversion_that_fails_leaves_attentions_as_they_were():
    model = Encoder()
    with pytest.raises(ValueError, match="nothing to convert"):
        vbdrop.convert_(model, Units(filter_fn=lambda *_: False), example_inputs=X)
    assert type(model.encoder.layers[0].self_attn) is nn.MultiheadAttention


def test_biases_of_keys_are_left_with_a_reason():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.enter, self.last = nn.Linear(5, 6), nn.Linear(6, 2)
            self.attention = nn.MultiheadAttention(6, 3, add_bias_kv=True, batch_first=True)

        def forward(self, x):
            x = torch.relu(self.enter(x))
            return self.last(self.attention(x, x, x, need_weights=False)[0])

    report = vbdrop.convert_(Net(), Units(), example_inputs=X)
    assert "bias_k" in report.left["attention.out_proj"]
