import math
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.trained import above, below
from torch import Tensor, nn

import vbdrop
from vbdrop import ELBO, Rates, Units, Warmup, Weights, convert_, kl, param_groups
from vbdrop.data import digits


def converted(*modes) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    convert_(model, *(modes or [Weights()]))
    return model


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(8, 4), torch.arange(8) % 3


def train(model: nn.Module, elbo: ELBO, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        elbo(F.cross_entropy(model(x), y)).backward()
        optimizer.step()


class TestValue:
    @pytest.mark.parametrize("weight", [1.0, 0.0, 2.5, 20])
    def test_it_is_the_nll_and_its_share_of_the_kl(self, weight):
        model = converted()
        elbo = ELBO(model, n_train=600, kl_weight=weight)
        nll = torch.tensor(1.25, requires_grad=True)
        loss = elbo(nll)
        assert loss.shape == ()
        assert loss.item() == pytest.approx(1.25 + weight * kl(model).item() / 600, rel=1e-6)

    def test_its_gradient_is_that_of_both_parts(self):
        model = converted(Weights(), Units()).double()
        nll = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
        parameters = [parameter for name, parameter in model.named_parameters() if not name.endswith("bias")]
        found = torch.autograd.grad(ELBO(model, n_train=70, kl_weight=0.3)(nll), [nll, *parameters])
        expected = torch.autograd.grad(kl(model), parameters)
        assert found[0] == 1
        for one, other in zip(found[1:], expected, strict=True):
            torch.testing.assert_close(one, other * (0.3 / 70), rtol=1e-12, atol=0)

    def test_the_terms_are_the_parts_detached(self):
        model = converted()
        elbo = ELBO(model, n_train=100, kl_weight=2.0, warmup=Warmup(hold=1, ramp=4))
        elbo.epoch = 2
        x, y = batch()
        nll = F.cross_entropy(model(x), y)
        loss = elbo(nll)
        terms = elbo.terms
        assert terms.kl_weight == 0.5
        assert (terms.nll, terms.kl, terms.loss) == (nll, kl(model), loss)
        assert not any(part.requires_grad for part in (terms.nll, terms.kl, terms.loss))
        elbo.epoch = 3
        assert elbo.terms.kl_weight == 0.5, "they are those of the last loss"

    @pytest.mark.parametrize(
        ("model_dtype", "nll_dtype", "expected"),
        [
            (torch.float32, torch.float32, torch.float32),
            (torch.bfloat16, torch.bfloat16, torch.float32),
            (torch.float32, torch.float64, torch.float64),
            (torch.float64, torch.float32, torch.float64),
        ],
    )
    def test_the_loss_is_in_the_wider_precision(self, model_dtype, nll_dtype, expected):
        model = converted().to(model_dtype)
        elbo = ELBO(model, n_train=3, kl_weight=0.1)
        loss = elbo(torch.tensor(1.0, dtype=nll_dtype))
        assert loss.dtype == expected
        assert loss.item() == pytest.approx(
            1 + 0.1 / 3 * kl(model).item(), rel=1e-12 if model_dtype == torch.float64 else 1e-6
        )

    def test_one_number_in_a_vector_is_one_number(self):
        elbo = ELBO(converted(), n_train=10)
        assert torch.equal(elbo(torch.ones(1)), elbo(torch.tensor(1.0)))
        assert elbo.terms.nll.shape == ()

    def test_numpys_integers_count(self):
        assert ELBO(converted(), n_train=np.int64(50)).n_train == 50


class TestSchedule:
    def test_the_weight_follows_the_epoch(self):
        elbo = ELBO(converted(), n_train=10, kl_weight=3.0, warmup=Warmup(hold=2, ramp=4))
        weights = []
        for epoch in (0, 1.5, 2, 3, 4.5, 6, 100):
            elbo.epoch = epoch
            elbo(torch.tensor(0.0, requires_grad=True))
            weights.append(elbo.terms.kl_weight)
        assert weights == [0, 0, 0, 0.75, 1.875, 3, 3]

    def test_during_the_hold_the_kl_does_not_count(self):
        model = converted()
        elbo = ELBO(model, n_train=10, warmup=Warmup(hold=2))
        elbo.epoch = 1
        assert elbo(torch.tensor(0.5)).item() == 0.5
        assert elbo.terms.kl == kl(model)

    def test_the_weight_may_be_changed_on_the_way(self):
        model = converted()
        elbo = ELBO(model, n_train=10, warmup=Warmup(ramp=2))
        elbo.epoch = 1
        elbo.kl_weight = 4.0
        assert elbo(torch.tensor(0.0)).item() == pytest.approx(2 * kl(model).item() / 10, rel=1e-6)

    def test_an_epoch_that_was_never_set_is_an_error(self):
        elbo = ELBO(converted(), n_train=10, warmup=Warmup(hold=1))
        with pytest.raises(RuntimeError, match=r"`epoch` is not set: with a warmup, write `elbo\.epoch = e`"):
            elbo(torch.tensor(1.0))

    def test_without_a_warmup_no_epoch_is_needed(self):
        elbo = ELBO(converted(), n_train=10)
        assert elbo.epoch is None
        elbo(torch.tensor(1.0))
        assert elbo.terms.kl_weight == 1.0

    def test_a_checkpoint_goes_on_where_it_was(self):
        model = converted()
        first, second = (ELBO(model, n_train=10, warmup=Warmup(ramp=10)) for _ in range(2))
        for epoch in range(4):
            first.epoch = epoch
            first(torch.tensor(1.0, requires_grad=True))
        second.load_state_dict(first.state_dict())
        assert (second.epoch, second.calls) == (3, 4)
        assert torch.equal(second(torch.tensor(1.0)), first(torch.tensor(1.0)))

    def test_a_weight_that_was_changed_in_training_is_resumed(self):
        first, second = (ELBO(converted(), n_train=10) for _ in range(2))
        first.kl_weight = 0.3
        second.load_state_dict(first.state_dict())
        assert second.kl_weight == 0.3

    def test_a_checkpoint_survives_a_safe_file(self, tmp_path):
        elbo = ELBO(converted(), n_train=10)
        elbo.epoch = 2.5
        torch.save(elbo.state_dict(), tmp_path / "elbo.pt")
        elbo.load_state_dict(torch.load(tmp_path / "elbo.pt", weights_only=True))
        assert elbo.epoch == 2.5

    def test_a_state_of_something_else_is_an_error(self):
        with pytest.raises(ValueError, match="`state` must be a state_dict of an ELBO; it lacks calls, epoch"):
            ELBO(converted(), n_train=10).load_state_dict(converted().state_dict())


class Recorder:
    """An observer that doubles the weight of the KL before each step."""

    def __init__(self) -> None:
        self.steps: list[object] = []

    def before_step(self, elbo: ELBO, optimizer: torch.optim.Optimizer | None) -> None:
        self.steps.append(optimizer)
        elbo.kl_weight *= 2

    def state_dict(self) -> dict[str, object]:
        return {"count": len(self.steps)}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.steps = [None] * state["count"]


class TestObservers:
    def test_they_are_called_once_before_each_step_and_by_no_loss(self):
        model = converted()
        elbo, observer = ELBO(model, n_train=100), Recorder()
        elbo.observers.append(observer)
        x, y = batch()
        elbo(F.cross_entropy(model(x), y))
        elbo.step()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        elbo.attach(optimizer)
        optimizer.step()
        optimizer.step(lambda: torch.zeros(()))
        assert observer.steps == [None, optimizer, optimizer]
        assert elbo.terms.kl_weight == 8.0, "what an observer sets holds for the step that follows"

    def test_their_state_is_part_of_the_elbos(self):
        elbos = [ELBO(converted(), n_train=100) for _ in range(2)]
        for elbo in elbos:
            elbo.observers.append(Recorder())
        elbos[0].step()
        elbos[1].load_state_dict(elbos[0].state_dict())
        assert len(elbos[1].observers[0].steps) == 1

    def test_a_forgotten_step_is_told_once(self):
        model = converted()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        elbo = ELBO(model, n_train=100, check_every=5)
        elbo.observers.append(Recorder())
        with pytest.warns(UserWarning, match=r"`step` of the ELBO was not called for 5 losses") as said:
            train(model, elbo, optimizer, 10)
        assert len(said) == 1

    def test_steps_and_evaluations_are_not_taken_for_a_forgotten_step(self):
        model = converted()
        elbo = ELBO(model, n_train=100, check_every=5)
        elbo.observers.append(Recorder())
        for _ in range(12):
            elbo(torch.tensor(1.0))
            elbo(torch.tensor(1.0, requires_grad=True))
            elbo.step()
        with torch.no_grad():
            for _ in range(12):
                elbo(torch.tensor(1.0))

    def test_a_state_with_other_observers_changes_nothing(self):
        elbo = ELBO(converted(), n_train=100)
        elbo.observers.append(Recorder())
        with pytest.raises(ValueError, match="a state for each of the 1 observers; got 2"):
            elbo.load_state_dict({"epoch": 3, "calls": 5, "observers": [{"count": 1}] * 2})
        assert (elbo.epoch, elbo.calls) == (None, 0)
        elbo.load_state_dict({"epoch": 3, "calls": 5})
        assert (elbo.epoch, elbo.calls) == (3, 5)


class TestErrors:
    @pytest.mark.parametrize("n_train", [0, -1, 1.5, 60_000.0, True, "100", None, torch.tensor(5)])
    def test_a_wrong_n_train_explains_itself(self, n_train):
        with pytest.raises(ValueError, match="`n_train` must be the number of training examples, an int >= 1; got"):
            ELBO(converted(), n_train=n_train)

    def test_a_missing_n_train_is_named(self):
        with pytest.raises(
            ValueError, match=r"`n_train` must be .*; got None\. The KL belongs to the whole training set"
        ):
            ELBO(converted())

    @pytest.mark.parametrize(
        ("nll", "got"),
        [
            (torch.ones(8), r"shape \(8,\), torch\.float32"),
            (torch.ones(0), r"shape \(0,\)"),
            (torch.tensor(3), r"shape \(\), torch\.int64"),
            (1.25, r"1\.25"),
            (None, "None"),
        ],
    )
    def test_an_nll_that_is_not_one_number_is_an_error(self, nll, got):
        elbo = ELBO(converted(), n_train=10)
        with pytest.raises(
            ValueError, match=f"`nll` must be one floating-point number, the mean over the batch; got {got}"
        ):
            elbo(nll)
        assert elbo.calls == 0

    @pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1", True, torch.tensor(1.0)])
    def test_a_wrong_weight_or_epoch_is_named(self, value):
        with pytest.raises(ValueError, match="`kl_weight` must be a finite number, at least 0; got"):
            ELBO(converted(), n_train=10, kl_weight=value)
        elbo = ELBO(converted(), n_train=10)
        with pytest.raises(ValueError, match="`epoch` must be a finite number, at least 0; got"):
            elbo.epoch = value
        with pytest.raises(ValueError, match="`kl_weight` must be a finite number, at least 0; got"):
            elbo.kl_weight = value
        assert (elbo.epoch, elbo.kl_weight) == (None, 1.0)

    @pytest.mark.parametrize("value", [-1, 0.5, True, None])
    def test_a_wrong_check_every_is_named(self, value):
        with pytest.raises(ValueError, match="`check_every` must be a number of calls, an int >= 0; got"):
            ELBO(converted(), n_train=10, check_every=value)

    def test_a_wrong_warmup_is_named(self):
        with pytest.raises(TypeError, match=r"`warmup` must be a vbdrop\.Warmup or None; got 5"):
            ELBO(converted(), n_train=10, warmup=5)

    def test_a_plain_model_is_named(self):
        with pytest.raises(ValueError, match=r"`model` has no converted layer; call vbdrop\.convert_"):
            ELBO(nn.Linear(2, 2), n_train=10)
        with pytest.raises(TypeError, match=r"`model` must be a torch\.nn\.Module; got dict"):
            ELBO({}, n_train=10)

    def test_there_are_no_terms_before_the_first_call(self):
        with pytest.raises(RuntimeError, match="`terms` exist only after the first call"):
            _ = ELBO(converted(), n_train=10).terms


class TestNotFinite:
    def test_it_is_found_at_the_check_with_the_layers_name(self):
        model = converted()
        elbo = ELBO(model, n_train=10, check_every=5)
        x, y = batch()
        with torch.no_grad():
            model[2].log_sigma2[0, 0] = math.nan
        for _ in range(4):
            elbo(F.cross_entropy(model(x), y))
        with pytest.raises(FloatingPointError, match=r"nll = nan, kl = nan\)\. Not finite: '2\.log_sigma2'"):
            elbo(F.cross_entropy(model(x), y))

    def test_it_is_found_in_the_data(self):
        elbo = ELBO(converted(), n_train=10, check_every=1)
        with pytest.raises(
            FloatingPointError, match=r"nll = inf, kl = .*All parameters, gradients and KL terms are fin"
        ):
            elbo(torch.tensor(math.inf))

    def test_a_real_divergence_is_found(self):
        model = converted()
        elbo = ELBO(model, n_train=10, check_every=10)
        optimizer = torch.optim.SGD(param_groups(model), lr=1e30)
        with pytest.raises(FloatingPointError, match=r"Not finite: '0\.(weight|bias)'"):
            train(model, elbo, optimizer, 20)

    def test_it_can_be_switched_off(self):
        model = converted()
        elbo = ELBO(model, n_train=10, check_every=0)
        for _ in range(3):
            assert elbo(torch.tensor(math.nan)).isnan()
        with pytest.raises(FloatingPointError):
            elbo.check()


class TestRatesThatNobodyTrains:
    MESSAGE = r"dropout rates of '0', '2' have not moved: does the optimizer have them\? .*param_groups"

    def test_an_optimizer_without_them_is_noticed_once(self):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        optimizer = torch.optim.Adam(model.parameters())
        convert_(model, Weights())
        elbo = ELBO(model, n_train=100)
        train(model, elbo, optimizer, 99)
        with pytest.warns(UserWarning, match=self.MESSAGE):
            train(model, elbo, optimizer, 1)
        train(model, elbo, optimizer, 201)

    def test_gates_are_noticed_too(self):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        optimizer = torch.optim.Adam(model.parameters())
        convert_(model, Units())
        with pytest.warns(UserWarning, match="of '0.gate', '2.gate' have not moved"):
            train(model, ELBO(model, n_train=100, check_every=3), optimizer, 3)

    @pytest.mark.parametrize("modes", [(Weights(),), (Units(),), (Rates(),), (Weights(), Units())])
    @pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
    def test_rates_that_are_trained_are_fine_at_every_call(self, modes, kind):
        model = converted(*modes)
        train(model, ELBO(model, n_train=100, check_every=1), kind(param_groups(model, lr=0.01)), 5)

    def test_rates_that_were_added_to_an_optimizer_are_fine(self):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        optimizer = torch.optim.Adam(model.parameters())
        convert_(model, Weights())
        for group in param_groups(model, existing=optimizer):
            optimizer.add_param_group(group)
        train(model, ELBO(model, n_train=100, check_every=2), optimizer, 4)

    def test_before_the_first_step_of_a_long_accumulation_nothing_is_said(self):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        weights = list(model.parameters())
        convert_(model, Weights())
        elbo = ELBO(model, n_train=100, check_every=2)
        optimizer = torch.optim.Adam(weights)
        for _ in range(7):
            x, y = batch()
            elbo(F.cross_entropy(model(x), y)).backward()
        optimizer.step()
        with pytest.warns(UserWarning, match=self.MESSAGE):
            train(model, elbo, optimizer, 1)

    def test_a_resumed_training_is_not_judged_by_its_first_call(self):
        model = converted()
        elbo = ELBO(model, n_train=100)
        elbo.load_state_dict({"epoch": 0, "calls": 99})
        train(model, elbo, torch.optim.Adam(param_groups(model)), 3)

    def test_evaluation_moves_nothing_and_says_nothing(self):
        model = converted().eval()
        elbo = ELBO(model, n_train=100, check_every=1)
        with torch.no_grad():
            for _ in range(3):
                x, y = batch()
                elbo(F.cross_entropy(model(x), y))


class TestTrainingThatGoesWrong:
    def test_a_warmup_whose_epoch_was_set_once_and_never_moved(self):
        model = converted()
        elbo = ELBO(model, n_train=8000, warmup=Warmup(hold=2, ramp=4))
        elbo.epoch = 0
        nll = torch.tensor(1.0, requires_grad=True)
        for _ in range(999):
            elbo(nll)
        with pytest.warns(UserWarning, match=r"`epoch` of the ELBO has not changed for 1,000 calls"):
            elbo(nll)
        for _ in range(1000):
            elbo(nll)

    def test_a_warmup_whose_epoch_moves_or_that_is_over_is_fine(self):
        model = converted()
        elbo = ELBO(model, n_train=8000, warmup=Warmup(hold=2, ramp=1))
        for epoch in range(3):
            elbo.epoch = epoch
            for _ in range(600):
                elbo.epoch = epoch
                elbo(torch.tensor(1.0, requires_grad=True))
        elbo.epoch = 3
        for _ in range(1100):
            elbo(torch.tensor(1.0, requires_grad=True))

    def test_a_likelihood_without_a_gradient_is_told_once(self):
        model = converted()
        elbo = ELBO(model, n_train=100)
        x, y = batch()

        def steps():
            for _ in range(20):
                elbo(F.cross_entropy(model(x), y).detach()).backward()

        with pytest.warns(UserWarning, match=r"`nll` had no gradient in 5 calls in a row: only the KL trains") as said:
            steps()
        assert [warning.filename for warning in said] == [__file__]
        train(model, elbo, torch.optim.SGD(model.parameters(), lr=0.01), 1)
        for _ in range(20):
            elbo(F.cross_entropy(model(x), y).detach())

    def test_evaluations_between_steps_in_eval_mode_or_with_an_attached_kl_need_no_gradient(self):
        model = converted()
        elbo, nll = ELBO(model, n_train=100), torch.tensor(1.0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(4):
            for _ in range(4):
                elbo(nll)
            train(model, elbo, optimizer, 1)
        with torch.no_grad():
            for _ in range(10):
                elbo(nll)
        model.eval()
        for _ in range(10):
            elbo(nll)
        model.train()
        optimizer.zero_grad()
        elbo.attach(optimizer)
        for _ in range(10):
            elbo(nll)

    def test_gates_that_all_die_in_the_first_epoch(self):
        """A fresh network on real digits under a KL that is far too strong for it."""
        data = digits()
        images, labels = data.train_images[:1000].flatten(1), data.train_labels[:1000]
        model = nn.Sequential(nn.Linear(784, 30), nn.ReLU(), nn.Linear(30, 10))
        convert_(model, Units())
        optimizer = torch.optim.Adam(param_groups(model, lr=2e-3, rate_lr=0.2))
        elbo = ELBO(model, n_train=1000, kl_weight=20.0)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for chosen in torch.randperm(10_000).remainder(1000).split(50):
                optimizer.zero_grad()
                elbo(F.cross_entropy(model(images[chosen]), labels[chosen])).backward()
                optimizer.step()
        said = " ".join(str(warning.message) for warning in seen)
        assert {warning.filename for warning in seen} == {__file__}
        assert said.count("'0.gate'") == said.count("'2.gate'") == 1, said
        assert "is dead" in said
        assert "lower `kl_weight` (now 20)" in said


class TestThreads:
    @pytest.mark.parametrize("mode", [Weights(), Units()], ids=str)
    def test_one_model_in_several_threads(self, mode):
        """No step raises, and every loss is that of a forward of its own: likelihood and KL."""
        model = converted(mode)
        elbo, errors = ELBO(model, n_train=100, check_every=0), []
        expected = kl(model).item() / 100

        def steps() -> None:
            try:
                for _ in range(100):
                    x, y = batch()
                    nll = F.cross_entropy(model(x), y)
                    loss = elbo(nll)
                    assert loss.item() == pytest.approx(nll.item() + expected, rel=1e-5)
                    torch.autograd.grad(loss, list(model.parameters()))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=steps) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []


class TestCompiled:
    def test_a_whole_step_compiles_once_for_all_epochs(self):
        """The weight of the KL changes with the epoch; each new value must not be a new program."""
        model = converted(Weights(), Units())
        elbo = ELBO(model, n_train=50, warmup=Warmup(hold=2, ramp=12))
        programs = []

        def backend(graph, inputs):
            programs.append(graph)
            return graph.forward

        @torch.compile(fullgraph=True, backend=backend)
        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            return elbo(F.cross_entropy(model(x), y))

        optimizer = torch.optim.Adam(param_groups(model, lr=1e-2))
        for epoch in range(16):
            elbo.epoch = epoch
            elbo.kl_weight = 1.0 + epoch
            expected = kl(model).item()
            loss = loss_of(*batch())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            share = min(max(epoch - 2, 0) / 12, 1)
            assert elbo.terms.kl_weight == pytest.approx((1 + epoch) * share)
            assert elbo.terms.kl.item() == pytest.approx(expected, rel=1e-5)
            assert elbo.terms.loss == loss.detach()
            assert loss.item() == pytest.approx(elbo.terms.nll.item() + (1 + epoch) * share * expected / 50, rel=1e-5)
        assert len(programs) == 1

    def test_what_compiled_code_does_not_check_can_be_checked_by_hand(self):
        model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
        optimizer = torch.optim.Adam(model.parameters())
        convert_(model, Weights())
        elbo = ELBO(model, n_train=50, check_every=1)

        @torch.compile(fullgraph=True, backend="eager")
        def loss_of(x: Tensor, y: Tensor) -> Tensor:
            return elbo(F.cross_entropy(model(x), y))

        loss_of(*batch()).backward()
        elbo.check()
        optimizer.step()
        with pytest.warns(UserWarning, match="have not moved"):
            elbo.check()
        with torch.no_grad():
            model[0].weight.fill_(math.nan)
        loss_of(*batch())
        with pytest.raises(FloatingPointError, match=r"'0\.weight'"):
            elbo.check()


@pytest.mark.trained
def test_a_users_loop_trains_real_digits_and_gets_sparse():
    """Two hidden layers, six epochs on 8,000 digits: four in five weights go, and the digits are read."""
    data = digits()
    images, labels = data.train_images.flatten(1), data.train_labels
    model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 50), nn.ReLU(), nn.Linear(50, 10))
    convert_(model, Weights())
    optimizer = torch.optim.Adam(param_groups(model, lr=2e-3, rate_lr=1e-2), fused=True)
    elbo = ELBO(model, n_train=len(images), warmup=Warmup(hold=1, ramp=4))
    dead, kls = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for epoch in range(6):
            elbo.epoch = epoch
            for batch_of in torch.randperm(len(images)).split(100):
                optimizer.zero_grad()
                elbo(F.cross_entropy(model(images[batch_of]), labels[batch_of])).backward()
                optimizer.step()
            table = vbdrop.rates(model)
            dead.append(sum(rate.dead for rate in table.values()) / sum(rate.count for rate in table.values()))
            kls.append(elbo.terms.kl.item())
    test = data.test_images.flatten(1)
    with torch.no_grad():
        right = (model.eval()(test).argmax(1) == data.test_labels).float().mean().item()
        plain = vbdrop.deterministic_(model)
        kept = (plain(test).argmax(1) == data.test_labels).float().mean().item()
    above(0.85, right, mean=0.925, sd=0.0046)
    assert kept == right
    above(0.8, dead[-1], mean=0.932, sd=0.0016)
    assert dead == sorted(dead)
    below(1 / 3, kls[-1] / kls[0], mean=0.0254, sd=0.00075)
    zeros = sum(int((p == 0).sum()) for n, p in plain.named_parameters() if "weight" in n)
    assert zeros == sum(rate.dead for rate in table.values())
