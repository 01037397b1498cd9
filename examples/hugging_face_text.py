"""Train a small BERT from scratch with the Trainer of transformers and one learned gate per unit.

python examples/hugging_face_text.py [--steps 60] [--folder bert-vbdrop]
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

import vbdrop
from vbdrop.integrations.transformers import VBDropCallback, VBDropTrainer, restore_, save_pretrained


class Sequences(Dataset):
    """Sequences of tokens in two classes: those in which the first token occurs again, and the others.

    Args:
        size: The number of sequences.
        seed: The seed for drawing them.
    """

    def __init__(self, size: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(5, 30, (size, 12), generator=generator)
        again = torch.arange(size) % 2 == 0
        self.ids[again, 6] = self.ids[again, 0]
        self.labels = (self.ids[:, 1:] == self.ids[:, :1]).any(1).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"input_ids": self.ids[index], "labels": self.labels[index]}


def is_feed_forward(module: nn.Module, name: str) -> bool:
    """Whether a layer ends a feed-forward block: its inputs are the hidden units of the block."""
    return name.endswith("output.dense") and "attention" not in name


def main(arguments: list[str] | None = None) -> BertForSequenceClassification:
    """Train and save the model, load it again, and return it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("bert-vbdrop"))
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    train = Sequences(2000, seed=1)
    config = BertConfig(
        vocab_size=30, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=16,
    )  # fmt: skip
    model = BertForSequenceClassification(config)

    callback = VBDropCallback(
        vbdrop.Units(filter_fn=is_feed_forward),
        n_train=len(train),
        kl_weight=1.0,
        warmup=vbdrop.Warmup(ramp=1),
        rate_lr=1e-2,
    )
    training = TrainingArguments(
        str(args.folder), max_steps=args.steps, per_device_train_batch_size=8, gradient_accumulation_steps=4,
        learning_rate=1e-3, weight_decay=0.01, logging_steps=20, report_to=[], save_strategy="no", use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    trainer = VBDropTrainer(model, training, train_dataset=train, callbacks=[callback])
    trainer.train()
    print(vbdrop.rates(model))

    save_pretrained(model, args.folder)
    return restore_(BertForSequenceClassification.from_pretrained(args.folder), args.folder)


if __name__ == "__main__":
    main()
