"""Train one network in two or more processes, and shrink it on the way: DistributedDataParallel over gloo.

torchrun --nproc-per-node 2 examples/distributed_digits.py [--epochs 4] [--examples 8000]
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import vbdrop
from vbdrop.data import digits
from vbdrop.integrations.distributed import shrink_ranks_
from vbdrop.models import build


def train(model: nn.Module, images: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """Train a converted model with the other processes; every rank sees its share of each batch."""
    rank, world = dist.get_rank(), dist.get_world_size()
    wrapped = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(vbdrop.param_groups(model, lr=2e-3, rate_lr=1e-2))
    elbo = vbdrop.ELBO(model, n_train=len(labels), kl_weight=2.0, warmup=vbdrop.Warmup(ramp=epochs / 2))
    elbo.attach(optimizer)  # adds the KL after gradients are averaged, so that it counts once
    order = torch.Generator().manual_seed(1)  # the same on all ranks
    torch.manual_seed(100 + rank)  # different noise on every rank
    for epoch in range(epochs):
        elbo.epoch = epoch
        for batch in torch.randperm(len(labels), generator=order).split(100):
            share = batch[rank::world]
            optimizer.zero_grad()
            F.cross_entropy(wrapped(images[share]), labels[share]).backward()
            optimizer.step()
        wrapped = shrink_ranks_(wrapped, images[:2], optimizer)
        if rank == 0:
            print(f"epoch {epoch + 1}: {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)


def main(arguments: list[str] | None = None) -> nn.Module:
    """Train and compress a model, and return the small one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--examples", type=int, default=8000)
    args = parser.parse_args(arguments)
    dist.init_process_group("gloo")
    data = digits()
    torch.manual_seed(0)  # the same weights on all ranks
    model = build("lenet-300-100")
    vbdrop.convert_(model, vbdrop.Units())
    train(model, data.train_images[: args.examples], data.train_labels[: args.examples], args.epochs)
    small = vbdrop.compress(model, data.test_images[:2])
    if dist.get_rank() == 0:
        wrong = (small.model(data.test_images).argmax(1) != data.test_labels).float().mean().item()
        print(f"test error {wrong:.2%}, {sum(p.numel() for p in small.model.parameters()):,} parameters")
    dist.destroy_process_group()
    return small.model


if __name__ == "__main__":
    main()
