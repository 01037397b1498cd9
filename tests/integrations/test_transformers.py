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


def test_a_model_that_counts_tokens_itself_gets_the_kl_once_per_step(tmp_path):
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
        args = arguments(tmp_path, **sizes, max_steps=1, optim="sgd", learning_rate=1.0)
        trainer = Trainer(model, args, train_dataset=Tokens(), callbacks=[callback])
        rate = model.model.layers[0].mlp.up_proj.log_sigma2
        before = rate.detach().clone()
        (expected,) = torch.autograd.grad(vbdrop.kl(model) * 1e5 / (32 * 8), rate)
        trainer.train()
        assert trainer.model_accepts_loss_kwargs
        changes.append(((before - rate.detach()) / expected).median().item())
    assert changes == pytest.approx([1.0, 1.0], rel=1e-2)


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
    assert "vbdrop/dead_share/classifier.gate" in trainer.state.log_history[0]


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
