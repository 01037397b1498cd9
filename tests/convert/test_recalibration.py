import copy

import pytest
import torch
from torch import nn

from vbdrop import Weights, compress, convert_, recalibrate_
from vbdrop.convert.recalibration import BATCH, noisy_norms, without_noise


@pytest.fixture
def model() -> nn.Sequential:
    """Two norms behind layers whose noise is as large as their signal, with a weight that is dead."""
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2), nn.BatchNorm1d(2))
    convert_(model, Weights())
    with torch.no_grad():
        for layer in (model[0], model[3]):
            layer.log_sigma2.copy_(layer.weight.square().log())
        model[0].log_sigma2[0, 0] += 10
        model[1].weight.copy_(torch.tensor([1.0, 2.0, 0.5, -1.0]))
        model[1].bias.uniform_()
    model.train()
    for _ in range(3):
        model(torch.randn(16, 3))
    return model


BATCHES = [torch.randn(size, 3, generator=torch.Generator().manual_seed(size)) for size in (32, 32, 7)]


def statistics(model: nn.Module) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in model.state_dict().items() if "running" in key or "tracked" in key}


def test_the_statistics_are_those_of_the_masked_means(model):
    """By hand: the plain average over the batches of each batch's mean and unbiased variance, layer after layer."""
    weights = [layer.weight.masked_fill(next(layer.variational()).dead(), 0.0) for layer in (model[0], model[3])]
    assert (weights[0] == 0).sum() == 1
    expected = {"1": [], "4": []}
    for batch in BATCHES:
        first = batch @ weights[0].T + model[0].bias
        var, mean = torch.var_mean(first, 0, unbiased=False)
        middle = ((first - mean) / (var + model[1].eps).sqrt() * model[1].weight + model[1].bias).tanh()
        second = middle @ weights[1].T + model[3].bias
        expected["1"].append(torch.var_mean(first, 0))
        expected["4"].append(torch.var_mean(second, 0))
    assert recalibrate_(model, BATCHES) is model
    for name, moments in expected.items():
        norm = model.get_submodule(name)
        torch.testing.assert_close(norm.running_var, torch.stack([var for var, _ in moments]).mean(0))
        torch.testing.assert_close(norm.running_mean, torch.stack([mean for _, mean in moments]).mean(0))
        assert norm.num_batches_tracked == 3


def test_it_takes_the_noises_variance_out_of_the_output(model):
    x = torch.randn(2000, 3)
    model.train()
    for _ in range(50):
        model(x)
    with torch.no_grad():
        noisy = model.eval()(x).std(0)
        recalibrate_(model, [x])
        torch.testing.assert_close(model(x).std(0), torch.ones(2), atol=1e-3, rtol=0)
    assert (noisy < 0.9).all()


@pytest.mark.parametrize("pack", [lambda x: (x, torch.zeros(len(x))), lambda x: [x, "label"], lambda x: x])
def test_a_data_loader_of_pairs_works(model, pack):
    recalibrate_(model, (pack(batch) for batch in BATCHES))
    found = statistics(model)
    recalibrate_(model, BATCHES)
    for key, value in statistics(model).items():
        assert torch.equal(found[key], value), key


def test_everything_else_is_as_before(model):
    model[1].eval()
    model[4].momentum = None
    graphs = []
    model.register_forward_hook(lambda module, args, out: graphs.append(out.grad_fn))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    recalibrate_(model, BATCHES)
    assert [module.training for module in model.modules()] == [True, True, False, True, True, True]
    assert (model[1].momentum, model[4].momentum) == (0.1, None)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {f"{norm}.running_{part}" for norm in "14" for part in ("mean", "var")}
    assert graphs == [None] * 3


def breaks_off():
    yield BATCHES[0]
    raise OSError("the disk is gone")


@pytest.mark.parametrize(
    ("batches", "error", "message"),
    [
        (breaks_off(), OSError, "the disk is gone"),
        ([BATCHES[0], torch.randn(5, 9)], RuntimeError, "shapes"),
        ([], ValueError, "`batches` must yield at least one batch; got none"),
        (torch.randn(8, 3), TypeError, r"`batches` must be an iterable of batches.*got one Tensor: write \[x\]"),
        (3, TypeError, "`batches` must be an iterable of batches, such as a data loader; got 3"),
        (None, TypeError, "`batches` must be an iterable of batches, such as a data loader; got None"),
        ([{"x": BATCHES[0]}], TypeError, "`batches` must have the input as a tensor, .*; got a dict with the keys 'x'"),
    ],
)
def test_a_failure_restores_the_statistics_and_the_mode(model, batches, error, message):
    before = statistics(model)
    with pytest.raises(error, match=message):
        recalibrate_(model, batches)
    for key, value in statistics(model).items():
        assert torch.equal(value, before[key]), key
    assert all(module.training for module in model.modules())
    assert model[1].momentum == 0.1


class TwoHeads(nn.Module):
    """Its second head is used in training alone."""

    def __init__(self):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
        self.extra = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))

    def forward(self, x):
        return (self.head(x), self.extra(x)) if self.training else self.head(x)


UNREACHED = r"no batch reached the BatchNorm layers 'extra\.1', which keep the statistics that they had"


def test_a_norm_that_no_batch_reaches_keeps_its_statistics():
    model = TwoHeads()
    convert_(model, Weights())
    for _ in range(3):
        model(torch.randn(16, 3))
    before = statistics(model)
    with pytest.warns(UserWarning, match=UNREACHED) as told:
        recalibrate_(model, BATCHES)
    assert [warning.filename for warning in told] == [__file__]
    changed = {key for key, value in statistics(model).items() if not torch.equal(value, before[key])}
    assert changed == {"head.1.running_mean", "head.1.running_var"}
    assert noisy_norms(model) == ["extra.1"]


class Uncounted(nn.BatchNorm1d):
    def forward(self, x):
        return nn.functional.batch_norm(x, self.running_mean, self.running_var, training=self.training)


def test_a_norm_that_does_not_count_its_batches_is_reached():
    model = nn.Sequential(Uncounted(3))
    recalibrate_(model, [BATCHES[0] + 5])
    assert (model[0].running_mean > 0.3).all()


def test_norms_without_statistics_are_left_alone():
    def never():
        raise AssertionError("a batch was asked for")
        yield

    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.LayerNorm(4))
    assert recalibrate_(model, never()) is model


def test_a_plain_model_and_an_eval_model_work():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
    x = torch.randn(4, 1, 5, 5)
    recalibrate_(model, [x])
    torch.testing.assert_close(model[1].running_mean, model[0](x).mean((0, 2, 3)))
    assert not model.training


class TestWithoutNoise:
    def test_statistics_that_hold_noise_are_told(self, model):
        with pytest.warns(UserWarning, match=r"statistics of '1', '4' were gathered in training, with the noise"):
            assert without_noise(model, None) is model

    def test_after_a_recalibration_nothing_is_said_until_training_goes_on(self, model):
        recalibrate_(model, BATCHES)
        assert noisy_norms(model) == noisy_norms(copy.deepcopy(model)) == []
        assert without_noise(model, None) is model
        model.train()(torch.randn(16, 3))
        assert noisy_norms(model) == ["1", "4"]

    @pytest.mark.parametrize("batches", [BATCHES, torch.cat(BATCHES)], ids=["batches", "tensor"])
    def test_data_recalibrate_a_copy(self, model, batches):
        before, copied = statistics(model), without_noise(model, batches)
        assert copied is not model
        assert {key: value.tolist() for key, value in statistics(model).items()} == {
            key: value.tolist() for key, value in before.items()
        }
        expected = recalibrate_(copy.deepcopy(model), batches if batches is BATCHES else [batches])
        for key, value in statistics(copied).items():
            torch.testing.assert_close(value, statistics(expected)[key])
        assert noisy_norms(copied) == []

    @pytest.mark.parametrize("extra", [1, 2])
    def test_every_example_of_a_tensor_has_the_same_weight(self, extra):
        """The last examples differ from the rest, and would decide if they were a batch of their own."""
        model = nn.Sequential(nn.BatchNorm1d(3))
        x = torch.cat([torch.randn(BATCH, 3), torch.full((extra, 3), 50.0)])
        mean = without_noise(model, x)[0].running_mean
        torch.testing.assert_close(mean, x.mean(0), atol=0.01 * extra, rtol=0)

    def test_norms_that_no_batch_reaches_are_told(self):
        model = TwoHeads()
        with pytest.warns(UserWarning, match=UNREACHED) as told:
            compress(model, BATCHES[0], recalibrate=BATCHES)
        assert [warning.filename for warning in told] == [__file__]

    def test_they_can_be_taken_as_they_are(self, model):
        assert without_noise(model, False) is model

    def test_a_plain_model_and_fresh_statistics_are_fine(self):
        plain = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        plain(torch.randn(8, 3))
        assert noisy_norms(plain) == []
        fresh = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4, track_running_stats=False))
        convert_(fresh, Weights())
        assert noisy_norms(fresh) == []
        fresh(torch.randn(8, 3))
        assert noisy_norms(fresh) == ["1"]

    @pytest.mark.parametrize(("arguments", "said"), [((1, None), "`model` must be a torch.nn.Module; got int")])
    def test_a_wrong_model_is_named(self, arguments, said):
        with pytest.raises(TypeError, match=said):
            without_noise(*arguments)

    def test_wrong_batches_are_named(self, model):
        with pytest.raises(TypeError, match=r"`recalibrate` must be a tensor of training inputs, .*; got int"):
            without_noise(model, 3)


def test_what_is_no_model_is_named():
    with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got NoneType"):
        recalibrate_(None, BATCHES)
