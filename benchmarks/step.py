"""The cost of a training step against the plain network's: forward, loss with its KL, backward and optimizer.

    python -m benchmarks.step [--threads 2] [--batch 128] [--rounds 40]

Every mode runs on its own copy of the same network, with fused Adam, nothing dead, interleaved in one process.
"""

import argparse

import torch

from benchmarks.networks import NETWORKS
from benchmarks.variants import OWN
from benchmarks.worker import times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="one of them; all if left out")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads, batch {args.batch}, {args.rounds} rounds")
    for network in args.network or NETWORKS:
        print(network)
        for mode, found in times(network, OWN, args.batch, args.rounds).items():
            print(f"  {mode:<16}{found['milliseconds']:9.2f} ms{found['ratio']:7.2f} x plain", flush=True)


if __name__ == "__main__":
    main()
