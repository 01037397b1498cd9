"""Train small transformers on real emails: a target for heads and feed-forward blocks against plain training.

    python -m benchmarks.text [--network bert gpt2] [--seeds 3] [--steps 400] [--tokens 128] [--only small]
                             [--output runs.jsonl]

The models have two layers of width 128 and train from scratch in the Trainer of transformers. Both runs of a seed
start from the same weights and have the same number of steps. The accuracy is that on the test mails after the last
step; with a target, that of the small plain model. Runs that the output file has are not repeated. Needs
``vbdrop[transformers]``.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import vbdrop
from benchmarks.mails import LENGTH, PAD, WORDS, Mails, load_mails
from vbdrop.layers.modes import Filter

BATCH, LR, DECAY = 16, 1e-3, 0.01

TIMES_FEWER = 3
"""The target: this many times fewer parameters in the attention and feed-forward layers."""


class Network(NamedTuple):
    """One architecture.

    Attributes:
        build: Makes it.
        ends_block: Chooses the layers that read the heads and the hidden units.
        counted: Chooses what the target counts.
    """

    build: Callable[[], nn.Module]
    ends_block: Filter
    counted: Filter


def bert() -> nn.Module:
    import transformers as hf

    config = hf.BertConfig(
        vocab_size=WORDS, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=LENGTH, pad_token_id=PAD,
    )  # fmt: skip
    return hf.BertForSequenceClassification(config)


def gpt2() -> nn.Module:
    import transformers as hf

    config = hf.GPT2Config(
        vocab_size=WORDS, n_embd=128, n_layer=2, n_head=4, n_inner=512, n_positions=LENGTH, pad_token_id=PAD,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return hf.GPT2ForSequenceClassification(config)


NETWORKS = {
    "bert": Network(
        bert,
        lambda module, name: name.endswith("output.dense"),
        lambda module, name: ".layer." in name and "LayerNorm" not in name,
    ),
    "gpt2": Network(
        gpt2,
        lambda module, name: name.endswith("c_proj"),
        lambda module, name: ".h." in name and ".ln_" not in name,
    ),
}


def run(network: Network, seed: int, steps: int, train: Mails, test: Mails, *, small: bool) -> dict[str, Any]:
    """Train once, and count and test the result."""
    import transformers as hf

    from vbdrop.integrations.transformers import VBDropCallback, VBDropTrainer

    hf.set_seed(seed)
    model = network.build()
    example = {name: value[None].expand(2, -1) for name, value in train[0].items() if name != "labels"}
    before, started = _counted(model, network), time.perf_counter()
    trainer_class, callbacks = hf.Trainer, []
    if small:
        vbdrop.convert_(model, vbdrop.Units(filter_fn=network.ends_block), example_inputs=example)
        target = vbdrop.Target(parameters=TIMES_FEWER, only=network.counted, steps=steps, example_inputs=example)
        trainer_class, callbacks = VBDropTrainer, [VBDropCallback(n_train=len(train), target=target)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = hf.TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=LR, weight_decay=DECAY,
            warmup_steps=steps // 10, seed=seed, report_to=[], save_strategy="no", logging_steps=40, use_cpu=True,
            disable_tqdm=True,
        )  # fmt: skip
        trainer_class(model, arguments, train_dataset=train, callbacks=callbacks).train()
    if small:
        model = vbdrop.compress(model, example, recalibrate=False).model
    return {
        "accuracy": 100 * _accuracy(model.eval(), test),
        "times_fewer": before / _counted(model, network),
        "steps": steps,
        "tokens": train.ids.shape[1],
        "seconds": time.perf_counter() - started,
    }


def _counted(model: nn.Module, network: Network) -> int:
    return sum(p.numel() for name, p in model.named_parameters() if network.counted(model, name.rpartition(".")[0]))


@torch.no_grad()
def _accuracy(model: nn.Module, test: Mails) -> float:
    right = 0
    for start in range(0, len(test), 64):
        ids = test.ids[start : start + 64]
        logits = model(input_ids=ids, attention_mask=(ids != PAD).long()).logits
        right += int((logits.argmax(1) == test.spam[start : start + 64]).sum())
    return right / len(test)


def table(runs: list[dict[str, Any]]) -> str:
    """Mean and standard deviation over the seeds, with the difference of each pair."""
    lines = ["| network | plain | with the target | difference | fewer parameters | n |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(each["network"] for each in runs):
        by_seed = {(each["seed"], each["small"]): each for each in runs if each["network"] == name}
        seeds = [seed for seed, small in by_seed if small and (seed, False) in by_seed]
        plain = [by_seed[seed, False]["accuracy"] for seed in seeds]
        small = [by_seed[seed, True]["accuracy"] for seed in seeds]
        fewer = min((by_seed[seed, True]["times_fewer"] for seed in seeds), default=0.0)
        gaps = [b - a for a, b in zip(plain, small, strict=True)]
        cells = [_spread(plain), _spread(small), _spread(gaps, "+"), f"{fewer:.2f}x", str(len(seeds))]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _spread(values: list[float], sign: str = "") -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):{sign}.2f} ± {deviation:.2f}" if values else "–"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--tokens", type=int, default=LENGTH, help="how many tokens of each mail to use")
    parser.add_argument("--only", choices=("plain", "small"), help="make only one of the two runs")
    parser.add_argument("--output", type=Path, default=Path("text-runs.jsonl"))
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    train, test = (Mails(mails.ids[:, : args.tokens], mails.spam) for mails in load_mails())
    print(
        f"{len(train)} training mails, {len(test)} test mails, {test.spam.double().mean():.1%} of them spam", flush=True
    )
    lines = args.output.read_text().splitlines() if args.output.is_file() else []
    runs = [json.loads(line) for line in lines]
    made = {(each["network"], each["seed"], each["small"]) for each in runs}
    for name in args.network:
        for seed in range(args.seeds):
            for small in (False, True):
                if (name, seed, small) in made or args.only == ("plain" if small else "small"):
                    continue
                found = run(NETWORKS[name], seed, args.steps, train, test, small=small)
                runs.append({"network": name, "seed": seed, "small": small, **found})
                with args.output.open("a") as file:
                    file.write(json.dumps(runs[-1]) + "\n")
                print(json.dumps(runs[-1]), flush=True)
    print(table(runs))


if __name__ == "__main__":
    main()
