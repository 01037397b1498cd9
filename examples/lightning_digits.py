"""Train a LightningModule with learned gates, shrink it on the way and compress it, without changing its code.

python examples/lightning_digits.py [--epochs 6] [--examples 8000]
"""

import argparse

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import vbdrop
from vbdrop.data import digits
from vbdrop.integrations.lightning import VBDropCallback


class Classifier(pl.LightningModule):
    """A plain classifier: nothing in it knows about vbdrop."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.net(x)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """The mean negative log likelihood of a batch."""
        return F.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimizer will do."""
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


def main(arguments: list[str] | None = None) -> VBDropCallback:
    """Train, print what is left, and return the callback."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--examples", type=int, default=8000)
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    data = digits()
    train = TensorDataset(data.train_images[: args.examples], data.train_labels[: args.examples])

    module = Classifier()
    callback = VBDropCallback(
        vbdrop.Units(),
        n_train=len(train),
        kl_weight=2.0,
        warmup=vbdrop.Warmup(ramp=args.epochs / 2),
        rate_lr=1e-2,
        shrink_every=1,
        example_inputs=data.test_images[:2],
        compress_at_end=True,
    )
    trainer = pl.Trainer(
        max_epochs=args.epochs, callbacks=[callback], accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, DataLoader(train, batch_size=100, shuffle=True))

    small = callback.compressed
    wrong = (small.model(data.test_images).argmax(1) != data.test_labels).float().mean().item()
    print(small.summary())
    print(f"test error {wrong:.2%}")
    return callback


if __name__ == "__main__":
    main()
