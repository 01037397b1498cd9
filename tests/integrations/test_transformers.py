import socket

import pytest
import torch
import torch.nn.functional as F
from tests.integrations.extras import needs
from tests.integrations.network import (
    BATCH,
    EXAMPLES,
    LR,
    MODES,
    STEPS,
    Examples,
    PerExampleNoise,
    by_own_loop,
    largest_difference,
    parameters_of,
)
from tests.integrations.ranks import ended_ranks
from torch import nn
from torch.utils.data import SequentialSampler

import vbdrop

needs("transformers", "accelerate")

import transformers as hf  # noqa: E402

from vbdrop.integrations.transformers import (  # noqa: E402
    VBDropCallback,
    VBDropTrainer,
    restore_,
    save_pretrained,
)


class WithLoss(nn.Module):
    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x, labels):
        logits = self.network(x)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class InOrder:
    def _get_train_sampler(self, dataset=None):
        return SequentialSampler(dataset)


class Trainer(InOrder, VBDropTrainer):
    pass


class PlainTrainer(InOrder, hf.Trainer):
    pass


def arguments(folder, **options):
    quiet = {"report_to": [], "save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "logging_strategy": "no"}
    exact = {"max_grad_norm": 0.0, "lr_scheduler_type": "constant", "optim": "adamw_torch", "learning_rate": LR}
    sizes = {"per_device_train_batch_size": BATCH, "num_train_epochs": 1}
    return hf.TrainingArguments(str(folder), **{**quiet, **exact, **sizes, **options})


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_it_trains_as_a_loop_of_ones_own(tmp_path, mode, accumulation):
    model = WithLoss(PerExampleNoise())
    options = {"per_device_train_batch_size": BATCH // accumulation, "gradient_accumulation_steps": accumulation}
    callback = VBDropCallback(MODES[mode], n_train=EXAMPLES)
    trainer = Trainer(model, arguments(tmp_path, **options), train_dataset=Examples(True), callbacks=[callback])
    trainer.train()
    assert trainer.state.global_step == STEPS
    assert largest_difference(by_own_loop(MODES[mode]), parameters_of(model)) < 1e-5


def small_bert(**options):
    torch.manual_seed(2)
    config = hf.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, **options,
    )  # fmt: skip
    return hf.BertForSequenceClassification(config)


class Texts(torch.utils.data.Dataset):
    def __init__(self, size=32):
        generator = torch.Generator().manual_seed(4)
        self.ids = torch.randint(5, 50, (size, 8), generator=generator)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, index):
        return {"input_ids": self.ids[index], "labels": (self.ids[index, 0] > 27).long()}


@pytest.mark.parametrize("bf16", [False, True])
def test_a_model_that_counts_tokens_itself_gets_the_kl_once_per_step(tmp_path, bf16):
    class Tokens(Texts):
        def __getitem__(self, index):
            return {"input_ids": self.ids[index], "labels": self.ids[index]}

    changes = []
    for accumulation in (1, 4):
        torch.manual_seed(2)
        config = hf.LlamaConfig(
            vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2,
        )  # fmt: skip
        model = hf.LlamaForCausalLM(config)
        callback = VBDropCallback(vbdrop.Weights(), n_train=32 * 8, kl_weight=1e5)
        sizes = {"per_device_train_batch_size": 8 // accumulation, "gradient_accumulation_steps": accumulation}
        args = arguments(tmp_path, **sizes, max_steps=1, optim="sgd", learning_rate=1.0, bf16=bf16)
        trainer = Trainer(model, args, train_dataset=Tokens(), callbacks=[callback])
        rate = model.model.layers[0].mlp.up_proj.log_sigma2
        before = rate.detach().clone()
        (expected,) = torch.autograd.grad(vbdrop.kl(model) * 1e5 / (32 * 8), rate)
        trainer.train()
        assert trainer.model_accepts_loss_kwargs  # it divides by their number itself
        changes.append(((before - rate.detach()) / expected).median().item())
    assert changes == pytest.approx([1.0, 1.0], rel=1e-2)


def test_a_model_that_does_not_count_items_gets_the_mean_over_the_accumulated_batches(tmp_path):
    changes = []
    for accumulation in (1, 4):
        model = small_bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
        callback = VBDropCallback(vbdrop.Weights(), n_train=32)
        sizes = {"per_device_train_batch_size": 8 // accumulation, "gradient_accumulation_steps": accumulation}
        args = arguments(tmp_path, **sizes, max_steps=1, optim="sgd", learning_rate=1.0)
        trainer = Trainer(model, args, train_dataset=Texts(), callbacks=[callback])
        assert trainer.model_accepts_loss_kwargs  # as the trainer believes
        before = model.classifier.bias.detach().clone()  # without noise and KL
        trainer.train()
        changes.append(before - model.classifier.bias.detach())
    torch.testing.assert_close(*changes, rtol=0.1, atol=0.0)


def test_rates_get_no_weight_decay_and_a_learning_rate_of_their_own(tmp_path):
    model = small_bert()
    callback = VBDropCallback(vbdrop.Weights(), n_train=32, rate_lr=0.5)
    args = arguments(tmp_path, weight_decay=0.3, max_steps=1)
    trainer = VBDropTrainer(model, args, train_dataset=Texts(), callbacks=[callback])
    trainer.train()
    rates = {id(p) for name, p in model.named_parameters() if "log_sigma2" in name}
    groups = [g for g in trainer.optimizer.param_groups if any(id(p) in rates for p in g["params"])]
    assert [(g["weight_decay"], g["lr"]) for g in groups] == [(0.0, 0.5)]
    assert {g["weight_decay"] for g in trainer.optimizer.param_groups} == {0.0, 0.3}


def test_a_trainer_that_would_decay_the_rates_is_refused(tmp_path):
    args = arguments(tmp_path, weight_decay=0.3, max_steps=1)
    callback = VBDropCallback(vbdrop.Weights(), n_train=32)
    trainer = PlainTrainer(small_bert(), args, train_dataset=Texts(), callbacks=[callback])
    with pytest.raises(ValueError, match="decays the rates"):
        trainer.train()


def test_an_optimizer_without_the_rates_is_refused(tmp_path):
    model = small_bert()
    optimizer = torch.optim.Adam(model.parameters())
    callback = VBDropCallback(vbdrop.Weights(), n_train=32)
    args = arguments(tmp_path, max_steps=1)
    trainer = PlainTrainer(model, args, train_dataset=Texts(), callbacks=[callback], optimizers=(optimizer, None))
    with pytest.raises(ValueError, match="lacks the rates"):
        trainer.train()


def test_scalars_are_logged_and_the_warm_up_moves_within_an_epoch(tmp_path):
    callback = VBDropCallback(vbdrop.Units(), n_train=32, warmup=vbdrop.Warmup(ramp=2))
    args = arguments(tmp_path, num_train_epochs=2, logging_strategy="steps", logging_steps=1)
    trainer = VBDropTrainer(small_bert(), args, train_dataset=Texts(), callbacks=[callback])
    trainer.train()
    logged = [entry["vbdrop/kl_weight"] for entry in trainer.state.log_history if "loss" in entry]
    assert logged == pytest.approx([step / 8 for step in range(8)])
    assert "vbdrop/dead_share_by_layer/classifier.gate" in trainer.state.log_history[0]


def test_training_in_bfloat16_keeps_the_rates_in_float32(tmp_path):
    callback = VBDropCallback(vbdrop.Weights(), n_train=32)
    model = small_bert()
    args = arguments(tmp_path, bf16=True, max_steps=2)
    VBDropTrainer(model, args, train_dataset=Texts(), callbacks=[callback]).train()
    assert model.classifier.log_sigma2.dtype == torch.float32
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_a_saved_model_comes_back_with_one_call(tmp_path):
    model = small_bert()
    vbdrop.convert_(
        model, vbdrop.Weights(threshold=2.5), vbdrop.Units(filter_fn=lambda _, name: "intermediate" in name)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        model.classifier.log_sigma2[0] = 9.0
    vbdrop.freeze_dead_(model)
    save_pretrained(model, tmp_path)
    plain = hf.BertForSequenceClassification.from_pretrained(tmp_path)
    restored = restore_(plain, tmp_path)
    expected = model.state_dict()
    assert restored.state_dict().keys() == expected.keys()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in restored.state_dict().items())
    assert restored.classifier.noise.threshold == 2.5
    ids = Texts().ids[:3]
    assert torch.equal(restored.eval()(ids).logits, model.eval()(ids).logits)


def test_a_checkpoint_comes_back_and_training_goes_on_from_it(tmp_path):
    def trained(**options):
        torch.manual_seed(7)
        callback = VBDropCallback(vbdrop.Weights(), n_train=32, warmup=vbdrop.Warmup(ramp=2))
        args = arguments(tmp_path, max_steps=4, save_strategy="steps", save_steps=2, seed=7)
        trainer = VBDropTrainer(small_bert(), args, train_dataset=Texts(), callbacks=[callback])
        trainer.train(**options)
        return trainer.model

    whole = trained()
    resumed = trained(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), resumed.parameters(), strict=True))
    base = hf.BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-4")
    restored = restore_(base, tmp_path / "checkpoint-4")
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), restored.parameters(), strict=True))
    with pytest.warns(UserWarning, match="a plain one without its rates and gates"):
        whole.save_pretrained(tmp_path / "plain")


def test_a_trainer_saves_the_rates_beside_its_model(tmp_path):
    args = arguments(tmp_path, max_steps=1)
    callback = VBDropCallback(vbdrop.Weights(), n_train=32)
    trainer = VBDropTrainer(small_bert(), args, train_dataset=Texts(), callbacks=[callback])
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    base = hf.BertForSequenceClassification.from_pretrained(tmp_path / "saved")
    restored = restore_(base, tmp_path / "saved")
    assert all(torch.equal(a, b) for a, b in zip(trainer.model.parameters(), restored.parameters(), strict=True))


def test_a_folder_without_rates_and_rates_of_another_model_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"with vbdrop\.json"):
        restore_(small_bert(), tmp_path)
    model = small_bert()
    vbdrop.convert_(model, vbdrop.Weights())
    save_pretrained(model, tmp_path)
    other = small_bert(num_labels=5)
    with pytest.raises(ValueError, match="do not fit"):
        restore_(other, tmp_path)
    assert other.state_dict().keys() == small_bert().state_dict().keys()
    assert type(other.classifier) is nn.Linear


TWO_RANKS = """
import os, sys
rank, folder = sys.argv[1], sys.argv[3]
os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT}
import torch
import transformers as hf
import vbdrop
from vbdrop.integrations.transformers import VBDropCallback, VBDropTrainer

torch.manual_seed(2)
config = hf.LlamaConfig(
    vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2,
)
model = hf.LlamaForCausalLM(config)
ids = torch.randint(5, 50, (32, 8), generator=torch.Generator().manual_seed(4))
lengths = 2 + torch.arange(32)[:, None] % 5  # so that the ranks have other numbers of tokens
labels = ids.masked_fill(torch.arange(8) > lengths, -100)
rows = [{"input_ids": a, "labels": b} for a, b in zip(ids, labels)]
args = hf.TrainingArguments(
    folder, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True, logging_strategy="no", max_grad_norm=0.0,
    lr_scheduler_type="constant", optim="sgd", learning_rate=1.0, per_device_train_batch_size=2, max_steps=1,
    gradient_accumulation_steps=2, average_tokens_across_devices=True,
)
callback = VBDropCallback(vbdrop.Weights(), n_train=32 * 8, kl_weight=1e5)
trainer = VBDropTrainer(model, args, train_dataset=rows, callbacks=[callback])
rate = model.model.layers[0].mlp.up_proj.log_sigma2
before = rate.detach().clone()
(expected,) = torch.autograd.grad(vbdrop.kl(model) * 1e5 / (32 * 8), rate)
trainer.train()
print(trainer.args.world_size, ((before - rate.detach()) / expected).median().item())
torch.distributed.destroy_process_group()
"""


def test_the_kl_counts_once_where_tokens_are_averaged_over_processes(tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
    ended = ended_ranks(f"PORT = '{port}'\n" + TWO_RANKS, 2, tmp_path, head="", tail="")
    assert [rank.code for rank in ended] == [0, 0], "\n".join(rank.error for rank in ended)
    for rank in ended:
        world, ratio = rank.out.splitlines()[-1].split()
        assert world == "2"
        assert float(ratio) == pytest.approx(1.0, rel=1e-2)


def ends_block(module, name):
    return name.endswith("output.dense")


def in_block(module, name):
    return ".layer." in name and "LayerNorm" not in name


def test_a_target_for_heads_and_feed_forward_is_reached_and_goes_on_from_a_checkpoint(tmp_path):
    inputs = {"input_ids": Texts().ids[:2]}

    def trained(**options):
        torch.manual_seed(7)
        target = vbdrop.Target(parameters=1.5, only=in_block)
        callback = VBDropCallback(
            vbdrop.Units(filter_fn=ends_block), n_train=32, rate_lr=0.1, example_inputs=inputs, target=target
        )
        args = arguments(tmp_path, max_steps=20, save_strategy="steps", save_steps=10, seed=7)
        trainer = VBDropTrainer(small_bert(), args, train_dataset=Texts(), callbacks=[callback])
        trainer.train(**options)
        return trainer

    whole, resumed = trained(), trained(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    state, again = whole.model.state_dict(), resumed.model.state_dict()
    assert state.keys() == again.keys()
    assert all(torch.equal(tensor, again[name]) for name, tensor in state.items())
    assert whole.vbdrop.elbo.observers[0].walk == resumed.vbdrop.elbo.observers[0].walk

    base = hf.BertForSequenceClassification.from_pretrained(tmp_path / "checkpoint-20")
    restored = restore_(base, tmp_path / "checkpoint-20", inputs)
    ids = Texts().ids
    assert torch.equal(restored.eval()(ids).logits, whole.model.eval()(ids).logits)
    small = vbdrop.compress(restored, inputs, recalibrate=False).model
    sizes = [
        sum(p.numel() for name, p in each.named_parameters() if in_block(each, name.rpartition(".")[0]))
        for each in (small_bert(), small)
    ]
    assert sizes[1] <= sizes[0] / 1.5


def test_a_target_does_not_go_on_where_nobody_knows_the_checkpoint(tmp_path):
    callback = VBDropCallback(
        vbdrop.Units(filter_fn=ends_block), n_train=32, example_inputs={"input_ids": Texts().ids[:2]},
        target=vbdrop.Target(parameters=1.5, only=in_block),
    )  # fmt: skip
    args = arguments(tmp_path, max_steps=4)
    trainer = PlainTrainer(small_bert(), args, train_dataset=Texts(), callbacks=[callback])
    trainer.state.global_step = 2
    with pytest.raises(ValueError, match="can only resume from a checkpoint in a VBDropTrainer"):
        callback.on_train_begin(args, trainer.state, trainer.control, model=trainer.model, optimizer=None)


def test_the_model_of_a_model_init_is_converted(tmp_path):
    callback = VBDropCallback(vbdrop.Weights(), n_train=32, rate_lr=0.5)
    args = arguments(tmp_path, max_steps=1, weight_decay=0.3)
    trainer = VBDropTrainer(None, args, train_dataset=Texts(), model_init=lambda: small_bert(), callbacks=[callback])
    first = trainer.model
    trainer.train()
    assert callback.elbo.model is trainer.model is not first
    assert callback.elbo.calls == 1
    assert (0.0, 0.5) in [(group["weight_decay"], group["lr"]) for group in trainer.optimizer.param_groups]


def test_a_checkpoint_of_a_trial_has_the_state(tmp_path):
    class Trial(VBDropTrainer):
        def _get_output_dir(self, trial):
            return str(tmp_path / "run-0")

    callback = VBDropCallback(vbdrop.Weights(), n_train=32)
    args = arguments(tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    Trial(small_bert(), args, train_dataset=Texts(), callbacks=[callback]).train()
    assert (tmp_path / "run-0" / "checkpoint-1" / "vbdrop_state.json").is_file()


def test_nothing_is_left_behind_after_an_exception(tmp_path):
    class Stopping(hf.TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            raise KeyError("stop")

    model, callback = small_bert(), VBDropCallback(vbdrop.Weights(), n_train=32)
    args = arguments(tmp_path, max_steps=2)
    trainer = VBDropTrainer(model, args, train_dataset=Texts(), callbacks=[callback, Stopping()])
    with pytest.raises(KeyError, match="stop"):
        trainer.train()
    callback.elbo(torch.tensor(1.0, requires_grad=True))  # refused as long as the KL is attached
    with pytest.warns(UserWarning, match="a plain one without its rates and gates"):
        model.save_pretrained(tmp_path / "plain")


def test_a_target_is_reached_within_one_epoch(tmp_path):
    callback = VBDropCallback(
        vbdrop.Units(filter_fn=ends_block), n_train=32, example_inputs={"input_ids": Texts().ids[:2]},
        target=vbdrop.Target(parameters=1.5, only=in_block),
    )  # fmt: skip
    VBDropTrainer(small_bert(), arguments(tmp_path), train_dataset=Texts(), callbacks=[callback]).train()
    assert callback.elbo.observers[0].is_cut


def test_with_a_target_the_best_model_is_one_that_has_its_size(tmp_path):
    errors = iter(range(100))
    callback = VBDropCallback(
        vbdrop.Units(filter_fn=ends_block), n_train=32, example_inputs={"input_ids": Texts().ids[:2]},
        target=vbdrop.Target(parameters=1.5, only=in_block),
    )  # fmt: skip
    every_epoch = {"eval_strategy": "epoch", "save_strategy": "epoch", "load_best_model_at_end": True}
    args = arguments(
        tmp_path, num_train_epochs=8, metric_for_best_model="error", greater_is_better=False, **every_epoch
    )
    trainer = VBDropTrainer(
        small_bert(), args, train_dataset=Texts(), eval_dataset=Texts(), callbacks=[callback],
        compute_metrics=lambda _: {"error": float(next(errors))},
    )  # fmt: skip
    trainer.train()
    cut = {n: bool(m.removed.any()) for n, m in trainer.model.named_modules() if hasattr(m, "removed")}
    assert any(cut.values())
    assert 4 < trainer.state.best_global_step < trainer.state.global_step
