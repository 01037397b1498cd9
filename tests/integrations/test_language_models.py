"""Language models of Hugging Face: heads, feed-forward neurons and channels go, and the models stay what they are."""

import json

import pytest
import torch
from tests.integrations.extras import needs

import vbdrop
from vbdrop.layers import Gate

needs("transformers")

import transformers  # noqa: E402

TOKENS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "vocab_size": 60}


def bert():
    """Two layers in the shape of BERT-base."""
    config = transformers.BertConfig(num_hidden_layers=2, vocab_size=60, max_position_embeddings=64, num_labels=3)
    return transformers.BertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(n_layer=2, n_embd=48, n_head=4, n_positions=64, **TOKENS)
    return transformers.GPT2LMHeadModel(config)


def llama():
    """Eight heads that query, in groups of two for each that is queried."""
    sizes = {"hidden_size": 64, "intermediate_size": 100, "num_attention_heads": 8, "num_key_value_heads": 4}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=2, **sizes, **TOKENS))


SHAPES = {
    bert: {
        "attention.self.query.weight": (384, 768),
        "attention.self.key.weight": (384, 768),
        "attention.self.value.weight": (384, 768),
        "attention.output.dense.weight": (768, 384),
        "intermediate.dense.weight": (1229, 768),
        "layer.0.output.dense.weight": (768, 1229),
    },
    gpt2: {
        "attn.c_attn.weight": (48, 72),
        "attn.c_proj.weight": (24, 48),
        "mlp.c_fc.weight": (48, 77),
        "mlp.c_proj.weight": (77, 48),
    },
    llama: {
        "q_proj.weight": (32, 64),
        "k_proj.weight": (16, 64),
        "v_proj.weight": (16, 64),
        "o_proj.weight": (64, 32),
        "gate_proj.weight": (40, 64),
        "up_proj.weight": (40, 64),
        "down_proj.weight": (64, 40),
    },
}
"""The shapes without half of the heads and without 60 % of the feed-forward neurons: 1843 of 3072, 115 of 192."""


def ids(*size):
    return torch.randint(1, 60, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def kill_(model, share):
    """Let a share of each gate die, all others get some value."""
    torch.manual_seed(2)
    for name, gate in model.named_modules():
        if isinstance(gate, Gate):
            dead = torch.randperm(len(gate.weight))[: round(share(name) * len(gate.weight))]
            gate.weight.uniform_(0.5, 1.5)
            gate.log_sigma2[dead] = 5.0


def heads_and_neurons(name):
    is_attention = any(part in name for part in ("attention_self", "c_attn", "q_proj"))
    return 0.5 if is_attention else 0.6 if any(part in name for part in ("intermediate", "c_fc", "gate_proj")) else 0.0


def converted(make, share):
    torch.manual_seed(0)
    model = make().eval()
    report = vbdrop.convert_(model, vbdrop.Units(), example_inputs={"input_ids": ids(2, 9)})
    kill_(model, share)
    return model, report


@pytest.fixture(scope="module", params=SHAPES, ids=lambda make: make.__name__)
def compressed(request):
    model, _ = converted(request.param, heads_and_neurons)
    return request.param, model, vbdrop.compress(model, {"input_ids": ids(2, 9)})


def test_half_of_the_heads_and_of_the_neurons_60_percent_are_gone(compressed):
    make, _, small = compressed
    found = {name: tuple(tensor.shape) for name, tensor in small.model.state_dict().items()}
    for end, shape in SHAPES[make].items():
        assert {found[name] for name in found if name.endswith(end)} == {shape}, end


def test_the_class_its_labels_and_other_lengths_stay(compressed):
    _, model, small = compressed
    assert type(small.model) is type(model)
    for size in ((1, 5), (3, 17)):
        tokens = ids(*size)
        labels = torch.zeros(len(tokens), dtype=torch.long) if model.config.model_type == "bert" else tokens
        with torch.no_grad():
            wanted, found = (net(input_ids=tokens, labels=labels) for net in (model, small.model))
        torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.loss, wanted.loss, rtol=1e-4, atol=1e-5)


def test_it_generates_the_same_tokens(compressed):
    _, model, small = compressed
    if model.config.model_type == "bert":
        pytest.skip("BERT does not generate")
    options = {"max_new_tokens": 10, "do_sample": False, "attention_mask": torch.ones(2, 4, dtype=torch.long)}
    assert torch.equal(small.model.generate(ids(2, 4), **options), model.generate(ids(2, 4), **options))


def test_it_is_saved_and_loaded_beside_its_config(compressed, tmp_path):
    _, _, small = compressed
    small.save(tmp_path / "small.safetensors")
    small.model.config.save_pretrained(tmp_path)
    config = type(small.model.config).from_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == 60
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=type(small.model)(config))
    with torch.no_grad():
        found, wanted = (net(input_ids=ids(2, 7)).logits for net in (loaded, small.model))
    assert torch.equal(found, wanted)


@pytest.mark.parametrize("make", [gpt2, llama], ids=lambda make: make.__name__)
def test_channels_of_the_residual_stream_go_from_every_layer(make, tmp_path):
    model, report = converted(make, lambda _: 0.25)
    assert report.groups[0].weights == 1.0
    small = vbdrop.compress(model, {"input_ids": ids(2, 9)})
    assert type(small.model) is type(model)
    width = model.get_input_embeddings().weight.shape[1] * 3 // 4
    assert small.model.get_input_embeddings().weight.shape[1] == width
    options = {"max_new_tokens": 10, "do_sample": False, "attention_mask": torch.ones(2, 4, dtype=torch.long)}
    assert torch.equal(small.model.generate(ids(2, 4), **options), model.generate(ids(2, 4), **options))
    with torch.no_grad():
        wanted, found = (net(input_ids=ids(3, 17), labels=ids(3, 17)) for net in (model, small.model))
    torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)
    small.save(tmp_path / "small.safetensors")
    loaded = vbdrop.load(tmp_path / "small.safetensors", model=type(model)(model.config))
    with torch.no_grad():
        assert torch.equal(loaded(input_ids=ids(3, 17)).logits, found.logits)


def test_a_converted_model_is_saved_and_restored_with_its_shared_gates(tmp_path):
    pytest.importorskip("accelerate")
    from vbdrop.integrations.transformers import restore_, save_pretrained

    model, _ = converted(gpt2, lambda _: 0.25)
    save_pretrained(model, tmp_path)
    plain = transformers.GPT2LMHeadModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="`example_inputs` must be inputs that the model accepts"):
        restore_(plain, tmp_path)
    twin = restore_(plain, tmp_path, {"input_ids": ids(2, 9)}).eval()
    with torch.no_grad():
        assert torch.equal(twin(input_ids=ids(2, 5)).logits, model(input_ids=ids(2, 5)).logits)
