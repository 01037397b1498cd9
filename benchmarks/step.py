"""Measure a training step against that of the plain network: forward, loss with its KL, backward and optimizer.

    python -m benchmarks.step [--threads 2] [--batch 128] [--rounds 40] [--compiled]

Every mode trains its own copy of the same network, with fused Adam and nothing dead, interleaved in one process. With
``--compiled``, each step also runs through `torch.compile`; the last column is its time as a ratio to the eager step.
"""

import argparse

import torch

from benchmarks.networks import NETWORKS
from benchmarks.variants import OWN
from benchmarks.worker import COMPILED, times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--network", choices=NETWORKS, action="append", help="a network; all by default")
    parser.add_argument("--compiled", action="store_true", help="compare with compiled steps, too")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads, batch {args.batch}, {args.rounds} rounds")
    variants = [name for own in OWN for name in ([own, own + COMPILED] if args.compiled else [own])]
    for network in args.network or NETWORKS:
        print(network)
        found = times(network, variants, args.batch, args.rounds)
        for mode in OWN:
            line = f"  {mode:<16}{found[mode]['milliseconds']:9.2f} ms{found[mode]['ratio']:7.2f} x plain"
            if args.compiled:
                line += f"{found[mode + COMPILED]['ratio'] / found[mode]['ratio']:7.2f} x eager if compiled"
            print(line, flush=True)


if __name__ == "__main__":
    main()
