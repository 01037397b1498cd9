"""What a model believes, averaged over its noise."""

import math

import pytest
import torch
from tests.prediction.networks import classifier, linear
from torch import nn

from vbdrop import Rates, Units, Weights, convert_, predict, sampling


class TestMoments:
    @pytest.mark.parametrize("max_rows", [8192, 50], ids=["one forward", "many"])
    def test_mean_and_deviation_are_those_of_a_linear_model(self, max_rows):
        """In closed form, n = 4000 samples, seed 0: within 5 standard errors, sd / sqrt(n) and sd / sqrt(2 n)."""
        layer, x, n = linear(), torch.randn(6, 5), 4000
        found = predict(layer, x, samples=n, link=nn.Identity(), max_rows=max_rows)
        with torch.no_grad():
            mean = x @ layer.weight.T + layer.bias
            std = (x.square() @ layer.log_sigma2.exp().T).sqrt()
        assert ((found.mean - mean).abs() < 5 * std / math.sqrt(n)).all()
        assert ((found.std - std).abs() < 5 * std / math.sqrt(2 * n)).all()

    def test_gates_are_drawn_for_every_sample(self):
        """A gate N(1, s2) on each input: the variance is the sum of (x w)^2 s2. n = 4000, within 5 standard errors."""
        layer, x, n = nn.Linear(5, 3), torch.randn(6, 5), 4000
        convert_(layer, Units(log_sigma2=-1.0))
        found = predict(layer, x, samples=n, link=nn.Identity())
        with torch.no_grad():
            std = (x.square() @ layer.weight.square().T * math.exp(-1)).sqrt()
            mean = x @ layer.weight.T + layer.bias
        assert ((found.mean - mean).abs() < 5 * std / math.sqrt(n)).all()
        assert ((found.std - std).abs() < 5 * std / math.sqrt(2 * n)).all()

    def test_the_dead_give_neither_mean_nor_noise(self):
        layer, x = nn.Linear(5, 3), torch.randn(6, 5)
        convert_(layer, Weights())
        with torch.no_grad():
            layer.log_sigma2[:, 1:] = 30.0
            layer.log_sigma2[:, :1] = -40.0
        found = predict(layer, x, samples=8, link=nn.Identity())
        torch.testing.assert_close(found.mean, x[:, :1] @ layer.weight[:, :1].T + layer.bias, atol=1e-5, rtol=0)
        assert found.std.max() < 1e-5

    def test_mean_and_deviation_are_those_of_the_kept_samples(self):
        found = predict(classifier(), torch.randn(6, 5), samples=9, keep_samples=True)
        assert found.samples.shape == (9, 6, 4)
        torch.testing.assert_close(found.mean, found.samples.mean(0))
        torch.testing.assert_close(found.std, found.samples.std(0))
        assert (found.std > 0).all()

    def test_one_sample_has_no_deviation(self):
        found = predict(classifier(), torch.randn(6, 5), samples=1)
        assert torch.equal(found.std, torch.zeros(6, 4))
        assert found.samples is None


class TestUncertainty:
    def test_entropy_and_mutual_information_are_those_of_the_kept_samples(self):
        found = predict(classifier(), torch.randn(6, 5), samples=7, keep_samples=True)
        for row in range(6):
            p = found.samples[:, row].double()
            torch.testing.assert_close(p.sum(-1), torch.ones(7, dtype=torch.float64), atol=1e-6, rtol=0)
            mean = p.mean(0)
            total = -(mean * mean.log()).sum().item()
            inner = -(p * p.log()).sum(-1).mean().item()
            assert found.entropy[row].item() == pytest.approx(total, abs=1e-5)
            assert found.mutual_information[row].item() == pytest.approx(total - inner, abs=1e-5)
            assert total - inner > 1e-3

    def test_without_noise_nothing_comes_from_the_weights(self):
        found = predict(linear(log_sigma2=-60.0), torch.randn(6, 5), samples=8)
        assert found.mutual_information.max() < 1e-6
        assert (found.entropy > 0.1).all()

    def test_certain_classes_have_no_entropy(self):
        layer = linear(log_sigma2=-60.0)
        nn.init.constant_(layer.weight, 0.0)
        with torch.no_grad():
            layer.bias.copy_(torch.tensor([1000.0, 0.0, 0.0]))
        found = predict(layer, torch.randn(2, 5), samples=4)
        assert torch.equal(found.entropy, torch.zeros(2))
        assert torch.equal(found.mutual_information, torch.zeros(2))

    @pytest.mark.parametrize(
        "link", [nn.Identity(), torch.sigmoid, nn.Sequential()], ids=["identity", "sigmoid", "empty"]
    )
    def test_outputs_that_are_no_distribution_have_none(self, link):
        found = predict(linear(), torch.randn(6, 5), samples=4, link=link)
        assert found.entropy is None
        assert found.mutual_information is None

    def test_draws_decide_what_is_a_distribution(self):
        """A pair of numbers with the sum 1: the mean is positive, but not every draw. n = 200, a deviation of 0.5."""
        torch.manual_seed(0)
        layer = linear(-3.0)
        nn.init.constant_(layer.weight, 0.1)
        nn.init.zeros_(layer.bias)
        found = predict(
            layer, torch.ones(2, 5), 200, link=lambda out: torch.stack([out[:, 0], 1 - out[:, 0]], 1), keep_samples=True
        )
        assert (found.mean >= 0).all()
        assert found.samples.min() < 0
        assert (found.entropy, found.mutual_information) == (None, None)

    def test_one_number_an_example_is_no_distribution_over_the_batch(self):
        model = nn.Sequential(linear(-60.0), nn.Flatten(0), nn.Unflatten(0, (-1, 3)), Column())
        found = predict(model, torch.randn(1, 5), samples=4, link=torch.ones_like)
        assert found.mean.tolist() == [1.0]
        assert found.entropy is None


class Column(nn.Module):
    def forward(self, x):
        return x[:, 0]


class Total(nn.Module):
    def forward(self, x):
        return x.sum()


class TestLink:
    def test_it_gets_the_models_outputs_as_they_are(self):
        """Softmax over axis 1 means the classes, however many samples there are."""
        model, x = classifier(), torch.randn(6, 5)
        torch.manual_seed(1)
        default = predict(model, x, samples=8, max_rows=24)
        torch.manual_seed(1)
        found = predict(model, x, samples=8, max_rows=24, link=nn.Softmax(dim=1))
        assert torch.equal(found.mean, default.mean)
        assert torch.equal(found.entropy, default.entropy)

    @pytest.mark.parametrize("method", ["samples", "moments"])
    @pytest.mark.parametrize(
        ("tail", "got"), [(Column(), r"\(\d+,\)"), (nn.Linear(3, 1), r"\(\d+, 1\)")], ids=["[n]", "[n, 1]"]
    )
    def test_one_number_an_example_needs_a_link(self, tail, got, method):
        model, x = nn.Sequential(linear(), tail), torch.randn(6, 5)
        with pytest.raises(
            ValueError, match=f"`link` must be given for a model that returns one number .*got None .* shape {got}"
        ):
            predict(model, x, samples=4, method=method)
        assert predict(model, x, samples=4, link=torch.sigmoid, method=method).mean.shape[0] == 6

    def test_it_may_change_the_shape_behind_the_batch(self):
        found = predict(
            linear(), torch.randn(6, 5), samples=4, link=lambda out: out.amax(1, keepdim=True), keep_samples=True
        )
        assert found.samples.shape == (4, 6, 1)

    @pytest.mark.parametrize(
        ("link", "message"),
        [
            (lambda out: out.argmax(1), r"`link` must return one floating-point tensor .*24 rows.*torch\.int64"),
            (lambda out: out.sum(), r"`link` must return .*got shape \(\)"),
            (lambda out: out.T, r"`link` must return .*got shape \(3, 24\)"),
            (lambda out: None, "`link` must return .*got NoneType"),
        ],
    )
    def test_a_wrong_result_is_named(self, link, message):
        with pytest.raises(ValueError, match=message):
            predict(linear(), torch.randn(6, 5), samples=4, link=link)

    def test_a_wrong_link_is_named(self):
        with pytest.raises(TypeError, match=r"`link` must be a function .*got 'softmax'"):
            predict(linear(), torch.randn(6, 5), link="softmax")

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    def test_statistics_are_in_float32_or_wider(self, dtype):
        found = predict(linear().to(dtype), torch.randn(6, 5).to(dtype), samples=16)
        assert found.mean.dtype == torch.promote_types(dtype, torch.float32)
        assert found.entropy is not None


class TestForwards:
    @pytest.mark.parametrize(
        ("batch", "samples", "max_rows", "rows"),
        [
            (6, 10, 8192, [60]),
            (6, 10, 24, [24, 24, 12]),
            (6, 3, 6, [6, 6, 6]),
            (6, 2, 4, [4, 4, 4]),
            (2, 3, 1, [1] * 6),
        ],
    )
    def test_as_many_rows_as_fit_are_computed_at_once(self, batch, samples, max_rows, rows):
        layer, seen = linear(log_sigma2=-60.0), []
        layer.register_forward_hook(lambda module, args, out: seen.append(len(out)))
        x = torch.randn(batch, 5)
        found = predict(layer, x, samples, nn.Identity(), max_rows=max_rows, keep_samples=True)
        assert seen == rows
        assert found.samples.shape == (samples, batch, 3)
        with torch.no_grad():
            expected = (x @ layer.weight.T + layer.bias).expand(samples, batch, 3)
        torch.testing.assert_close(found.samples, expected, atol=1e-6, rtol=0)

    @pytest.mark.parametrize("method", ["samples", "moments"])
    @pytest.mark.parametrize("max_rows", [8192, 24, 6, 2])
    def test_a_forward_that_changes_its_inputs_gets_its_own(self, max_rows, method):
        model, x = nn.Sequential(nn.Identity(), linear(-60.0)), torch.randn(6, 5)
        model[0].register_forward_pre_hook(lambda module, args: args[0].sub_(1.0))
        before = x.clone()
        found = predict(model, x, 10, nn.Identity(), max_rows=max_rows, method=method)
        assert torch.equal(x, before)
        torch.testing.assert_close(found.mean, model[1].eval()(before - 1).detach(), atol=1e-5, rtol=0)

    def test_every_sample_has_its_own_noise_within_a_forward_and_between(self):
        samples = predict(linear(), torch.randn(2, 5), samples=6, max_rows=4, keep_samples=True).samples
        assert len(samples.flatten(1).unique(dim=0)) == 6

    def test_images_and_sequences_keep_their_shape(self):
        model = nn.Conv2d(2, 3, 3, padding=1)
        convert_(model, Rates())
        found = predict(model, torch.randn(4, 2, 5, 6), samples=3, link=nn.Softmax(dim=1))
        assert found.mean.shape == (4, 3, 5, 6)
        assert found.entropy is None, "the last axis is no distribution"
        torch.testing.assert_close(found.mean.sum(1), torch.ones(4, 5, 6))

    def test_the_seed_decides(self):
        model, x = classifier(), torch.randn(6, 5)
        means = []
        for seed in (3, 3, 4):
            torch.manual_seed(seed)
            means.append(predict(model, x, samples=4).mean)
        assert torch.equal(means[0], means[1])
        assert not torch.equal(means[0], means[2])

    def test_nothing_keeps_a_graph(self):
        model = classifier()
        assert not predict(model, torch.randn(2, 5), samples=2).mean.requires_grad
        with torch.inference_mode():
            predict(model, torch.randn(2, 5), samples=2)

    @pytest.mark.parametrize("fails", [False, True])
    def test_every_mode_is_restored_and_nothing_is_changed(self, fails):
        model = classifier().train()
        model[3].eval()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        modes = [module.training for module in model.modules()]
        if fails:
            with pytest.raises(RuntimeError, match="shapes"):
                predict(model, torch.randn(2, 9))
        else:
            predict(model, torch.randn(6, 5), samples=3)
        assert [module.training for module in model.modules()] == modes
        assert not model[0].sampling
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())

    def test_only_the_learned_noise_is_drawn(self):
        """Eval mode for all else: a plain dropout stays off, and BatchNorm uses its statistics."""
        model = classifier(Rates(rate=1e-9)).train()
        x = torch.randn(6, 5)
        found = predict(model, x, samples=20)
        torch.testing.assert_close(found.mean, model.eval()(x).softmax(-1), atol=1e-3, rtol=0)


class TestErrors:
    @pytest.mark.parametrize("name", ["samples", "max_rows"])
    @pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
    def test_a_wrong_count_is_named(self, name, value):
        with pytest.raises(ValueError, match=f"`{name}` must be an int >= 1; got {value}"):
            predict(linear(), torch.randn(2, 5), **{name: value})

    @pytest.mark.parametrize(
        ("x", "got"),
        [(torch.randn(0, 5), r"shape \(0, 5\)"), (torch.tensor(1.0), r"shape \(\)"), ([[1.0] * 5], "list")],
    )
    def test_a_wrong_batch_is_named(self, x, got):
        with pytest.raises(ValueError, match=f"`x` must be a Tensor, a batch with at least one example; got {got}"):
            predict(linear(), x)

    @pytest.mark.parametrize(
        ("tail", "got"),
        [
            (nn.Flatten(0), r"shape \(18,\)"),
            (nn.LSTM(3, 2), "tuple"),
            (Total(), r"shape \(\)"),
        ],
    )
    def test_a_model_that_gives_something_else_is_named(self, tail, got):
        with pytest.raises(
            ValueError, match=f"`model` must return one floating-point tensor .*6 rows, first; got {got}"
        ):
            predict(nn.Sequential(linear(), tail), torch.randn(2, 5), samples=3)

    @pytest.mark.parametrize(
        "call", [lambda model: predict(model, torch.randn(2, 5)), lambda m: sampling(m).__enter__()]
    )
    def test_a_model_without_noise_is_an_error(self, call):
        with pytest.raises(
            ValueError, match=r"`model` has no converted layer, so it has no noise; call vbdrop\.convert_"
        ):
            call(nn.Linear(5, 3))
        with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got str"):
            call("model")


class TestMethodMoments:
    def test_a_linear_model_needs_no_samples(self):
        layer, x = linear(), torch.randn(6, 5)
        found = predict(layer, x, link=nn.Identity(), method="moments", max_rows=4)
        with torch.no_grad():
            torch.testing.assert_close(found.mean, x @ layer.weight.T + layer.bias)
            torch.testing.assert_close(found.std, (x.square() @ layer.log_sigma2.exp().T).sqrt())
        assert (found.entropy, found.mutual_information, found.samples) == (None, None, None)

    def test_classes_are_like_those_of_samples(self):
        """Noise on every weight, n = 4000 samples, seed 0: probabilities within 0.02, entropies within 0.05."""
        torch.manual_seed(0)
        model, x = nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 4)), torch.randn(16, 20)
        convert_(model, Weights(log_sigma2=-4.0, threshold=50.0))
        model.train()
        found, expected = (predict(model, x, 4000, method=method) for method in ("moments", "samples"))
        assert model.training
        torch.testing.assert_close(found.mean, expected.mean, atol=0.02, rtol=0)
        torch.testing.assert_close(found.std, expected.std, atol=0.02, rtol=0)
        torch.testing.assert_close(found.entropy, expected.entropy, atol=0.05, rtol=0)
        torch.testing.assert_close(found.mutual_information, expected.mutual_information, atol=0.02, rtol=0)
        assert expected.mutual_information.mean() > 0.01

    @pytest.mark.parametrize("keep_samples", [False, True])
    @pytest.mark.parametrize(
        ("tail", "got"),
        [(lambda out: out.mean(0), r"shape \(3,\)"), (lambda out: out.mean(), r"shape \(\)")],
        ids=["units", "one number"],
    )
    def test_outputs_without_the_batch_are_named(self, tail, got, keep_samples):
        class Mean(nn.Module):
            def forward(self, x):
                return tail(x)

        model = nn.Sequential(linear(), Mean())
        with pytest.raises(
            ValueError, match=f"`model` must return one floating-point tensor .*6 rows, first; got {got}"
        ):
            predict(model, torch.randn(6, 5), link=nn.Identity(), method="moments", keep_samples=keep_samples)

    def test_what_it_cannot_do_is_named(self):
        model = nn.Sequential(nn.Linear(5, 4), nn.Softmax(-1))
        convert_(model, Weights())
        with pytest.raises(TypeError, match=r"has no rule for softmax in '1'; use method='samples'"):
            predict(model, torch.randn(2, 5), method="moments")
        with pytest.raises(ValueError, match="`method` must be 'samples' or 'moments'; got 'magic'"):
            predict(model, torch.randn(2, 5), method="magic")
