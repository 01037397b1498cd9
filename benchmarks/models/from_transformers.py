"""The entries from Hugging Face transformers: text, images and sound, two layers of each."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.models.entry import BATCH, SIZE, Entry, images

WORDS, LENGTH = 200, 12

TEXT = {"vocab_size": WORDS, "num_labels": 4, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BERT = TEXT | {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
LLAMA = BERT | {"num_key_value_heads": 2}
GPT = TEXT | {"n_embd": 64, "n_layer": 2, "n_head": 4}
PAIR = TEXT | {
    **{"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4},
    **{"decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "decoder_start_token_id": 1},
}
T5 = TEXT | {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 1}
VIT = {
    **{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128},
    **{"image_size": SIZE, "patch_size": 16, "num_labels": 10},
}


def tokens() -> dict[str, Tensor]:
    """Random words."""
    return {"input_ids": torch.randint(3, WORDS, (BATCH, LENGTH))}


def long_tokens() -> dict[str, Tensor]:
    """Random words, as many as in a paragraph."""
    return {"input_ids": torch.randint(3, WORDS, (BATCH, 128))}


def two_texts() -> dict[str, Tensor]:
    """Random words for an encoder and a decoder."""
    return tokens() | {"decoder_input_ids": torch.randint(3, WORDS, (BATCH, LENGTH))}


def sound() -> dict[str, Tensor]:
    """Random waves."""
    return {"input_values": torch.randn(BATCH, 1600)}


def spectrum() -> dict[str, Tensor]:
    """A random spectrum for an encoder, and words for a decoder."""
    return {
        "input_features": torch.randn(BATCH, 80, 64),
        "decoder_input_ids": torch.randint(3, WORDS, (BATCH, LENGTH)),
    }


Inputs = Callable[[], Any]

MODELS: dict[str, tuple[str, dict[str, Any], Inputs]] = {
    # encoders of text
    "BertForSequenceClassification": ("BertConfig", BERT, tokens),
    "RobertaForSequenceClassification": ("RobertaConfig", BERT, tokens),
    "DistilBertForSequenceClassification": (
        "DistilBertConfig",
        TEXT | {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        tokens,
    ),
    "ElectraForSequenceClassification": ("ElectraConfig", BERT | {"embedding_size": 32}, tokens),
    "AlbertForSequenceClassification": ("AlbertConfig", BERT | {"embedding_size": 32}, tokens),
    "MPNetForSequenceClassification": ("MPNetConfig", BERT, tokens),
    "DebertaV2ForSequenceClassification": (
        "DebertaV2Config",
        BERT | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
        tokens,
    ),
    "FNetForSequenceClassification": ("FNetConfig", BERT, tokens),
    "SqueezeBertForSequenceClassification": ("SqueezeBertConfig", BERT | {"embedding_size": 64}, tokens),
    "ModernBertForSequenceClassification": ("ModernBertConfig", BERT, tokens),
    # decoders of text
    "GPT2LMHeadModel": ("GPT2Config", GPT, tokens),
    "GPTNeoForCausalLM": (
        "GPTNeoConfig",
        TEXT | {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
        tokens,
    ),
    "GPTJForCausalLM": ("GPTJConfig", GPT | {"rotary_dim": 8}, tokens),
    "GPTNeoXForCausalLM": ("GPTNeoXConfig", BERT, tokens),
    "OPTForCausalLM": ("OPTConfig", BERT | {"ffn_dim": 128, "word_embed_proj_dim": 64}, tokens),
    "BloomForCausalLM": ("BloomConfig", TEXT | {"hidden_size": 64, "n_layer": 2, "n_head": 4}, tokens),
    "LlamaForCausalLM": ("LlamaConfig", LLAMA, tokens),
    "MistralForCausalLM": ("MistralConfig", LLAMA, tokens),
    "Qwen2ForCausalLM": ("Qwen2Config", LLAMA, tokens),
    "Qwen3ForCausalLM": ("Qwen3Config", LLAMA | {"head_dim": 16}, tokens),
    "GemmaForCausalLM": ("GemmaConfig", LLAMA | {"head_dim": 16}, tokens),
    "PhiForCausalLM": ("PhiConfig", BERT, tokens),
    "StableLmForCausalLM": ("StableLmConfig", LLAMA, tokens),
    "FalconForCausalLM": ("FalconConfig", BERT, tokens),
    # from text to text
    "T5ForConditionalGeneration": ("T5Config", T5, two_texts),
    "BartForConditionalGeneration": ("BartConfig", PAIR, two_texts),
    "MarianMTModel": ("MarianConfig", PAIR, two_texts),
    "PegasusForConditionalGeneration": ("PegasusConfig", PAIR, two_texts),
    # images
    "ViTForImageClassification": ("ViTConfig", VIT, images()),
    "DeiTForImageClassification": ("DeiTConfig", VIT, images()),
    "BeitForImageClassification": ("BeitConfig", VIT, images()),
    "Dinov2ForImageClassification": ("Dinov2Config", VIT, images()),
    "CLIPForImageClassification": ("CLIPConfig", {"vision_config": VIT, "num_labels": 10}, images()),
    "SwinForImageClassification": (
        "SwinConfig",
        {"image_size": SIZE, "embed_dim": 32, "depths": [2, 1], "num_heads": [2, 4], "window_size": 4},
        images(),
    ),
    "ConvNextForImageClassification": (
        "ConvNextConfig",
        {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]},
        images(),
    ),
    "ResNetForImageClassification": (
        "ResNetConfig",
        {"embedding_size": 32, "hidden_sizes": [64, 96, 128, 160], "depths": [1, 1, 1, 1]},
        images(),
    ),
    "MobileViTForImageClassification": ("MobileViTConfig", {"image_size": SIZE, "num_labels": 10}, images()),
    "PoolFormerForImageClassification": (
        "PoolFormerConfig",
        {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]},
        images(),
    ),
    "SegformerForSemanticSegmentation": (
        "SegformerConfig",
        {"hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1], "decoder_hidden_size": 64},
        images(),
    ),
    "DPTForDepthEstimation": (
        "DPTConfig",
        VIT
        | {
            "neck_hidden_sizes": [16, 32, 48, 64],
            "fusion_hidden_size": 32,
            "backbone_out_indices": [0, 1, 2, 3],
            "num_hidden_layers": 4,
        },
        images(),
    ),
    # sound
    "Wav2Vec2ForSequenceClassification": (
        "Wav2Vec2Config",
        BERT
        | {"conv_dim": [32] * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
        | {"apply_spec_augment": False},  # the sounds are too short for it
        sound,
    ),
    "WhisperForConditionalGeneration": (
        "WhisperConfig",
        PAIR | {"num_mel_bins": 80, "max_source_positions": 32, "suppress_tokens": [], "begin_suppress_tokens": []},
        spectrum,
    ),
}
"""Class -> its configuration class, the options, and the inputs."""


WIDE: dict[str, tuple[str, dict[str, Any], Inputs]] = {
    "BertForSequenceClassification": ("BertConfig", TEXT | {"num_hidden_layers": 2}, long_tokens),
    "GPT2LMHeadModel": ("GPT2Config", TEXT | {"n_layer": 2}, long_tokens),
    "LlamaForCausalLM": (
        "LlamaConfig",
        TEXT
        | {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 2, "num_attention_heads": 16}
        | {"num_key_value_heads": 4},
        long_tokens,
    ),
}
"""Models of the width used in practice, on 128 words, where arithmetic dominates the latency."""


def _entry(name: str, config: str, options: dict[str, Any], inputs: Inputs, suffix: str = "") -> Entry:
    def make() -> nn.Module:
        import transformers

        return getattr(transformers, name)(getattr(transformers, config)(**options))

    note = "2 layers" if "hidden_size" in options or suffix else "few layers"
    return Entry("transformers", f"{name}{suffix}", make, inputs, note)


ENTRIES = [_entry(name, *rest) for name, rest in MODELS.items()]
ENTRIES += [_entry(name, *rest, suffix=" of full width") for name, rest in WIDE.items()]
