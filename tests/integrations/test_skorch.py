import pickle

import numpy as np
import pytest
import torch
from tests.integrations.extras import needs
from tests.integrations.network import (
    BATCH,
    LR,
    MODES,
    PerExampleNoise,
    by_own_loop,
    examples,
    largest_difference,
    parameters_of,
)
from torch import nn

import vbdrop

needs("skorch", "sklearn")

from sklearn.base import clone  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from skorch.callbacks import EarlyStopping, LRScheduler  # noqa: E402

from vbdrop.integrations.skorch import VBDClassifier, VBDRegressor, VBDropCallback  # noqa: E402


def classifier(module, **options):
    own = {"optimizer": torch.optim.AdamW, "criterion": nn.CrossEntropyLoss, "verbose": 0, "lr": LR, "max_epochs": 2}
    return VBDClassifier(module, **{**own, "modes": vbdrop.Weights(), "iterator_train__shuffle": False, **options})


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


def features():
    x, y = examples()
    return x[:, 1:].numpy(), y.numpy()


@pytest.mark.parametrize("mode", MODES)
def test_it_trains_as_a_loop_of_ones_own(mode):
    x, y = examples()
    net = classifier(
        PerExampleNoise,
        modes=MODES[mode],
        batch_size=BATCH,
        train_split=None,
        max_epochs=1,
        optimizer__weight_decay=0.0,
    )
    net.fit(x.numpy(), y.numpy())
    assert largest_difference(by_own_loop(MODES[mode]), parameters_of(net.module_)) < 1e-5


def test_the_kl_is_spread_over_the_training_split_and_warms_up():
    seen = []

    class Watching(VBDropCallback):
        def on_batch_end(self, net, **kwargs):
            seen.append((self.elbo_.n_train, self.elbo_.terms.kl_weight))

    net = classifier(network, warmup=vbdrop.Warmup(ramp=2), batch_size=64, callbacks__vbdrop=None)
    net.set_params(callbacks=[("watching", Watching(warmup=vbdrop.Warmup(ramp=2)))])
    net.fit(*features())
    n_train = len(net.get_split_datasets(*features())[0])
    assert n_train < len(features()[1])
    assert {n for n, _ in seen} == {n_train}
    assert sorted({weight for _, weight in seen}) == [0.0, 0.5]


def test_the_module_that_was_given_stays_plain_and_fits_start_anew():
    given = network()
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    net = classifier(given)
    first = parameters_copy(net.fit(*features()))
    torch.manual_seed(0)
    net.fit(*features())
    assert type(given[0]) is nn.Linear
    assert all(torch.equal(before[name], tensor) for name, tensor in given.state_dict().items())
    assert first.keys() == parameters_copy(net).keys()


def parameters_copy(net):
    return {name: parameter.detach().clone() for name, parameter in net.module_.named_parameters()}


def test_rates_get_no_weight_decay():
    net = classifier(network, optimizer__weight_decay=0.5, rate_lr=0.2).initialize()
    found = [(len(g["params"]), g["weight_decay"], g["lr"]) for g in net.optimizer_.param_groups]
    assert found == [(4, 0.5, LR), (2, 0.0, 0.2)]


def test_it_works_in_a_pipeline_and_a_grid_search():
    x, y = features()
    pipeline = make_pipeline(StandardScaler(), classifier(network, max_epochs=1, lr=0.05))
    weights, modes = [0.01, 100.0], [vbdrop.Weights(), vbdrop.Units()]
    grid = {"vbdclassifier__kl_weight": weights, "vbdclassifier__modes": modes}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(x.astype(np.float32), y)
    assert len(search.cv_results_["params"]) == 4
    assert search.predict(x).shape == y.shape
    probabilities = search.predict_proba(x)
    assert np.allclose(probabilities.sum(1), 1, atol=1e-5)
    assert 0 <= search.score(x, y) <= 1
    cloned = clone(search.best_estimator_).get_params()
    assert cloned["vbdclassifier__kl_weight"] == search.best_params_["vbdclassifier__kl_weight"]
    net = search.best_estimator_[-1]
    assert {"kl", "kl_weight", "dead_share"} <= set(net.history[-1])
    assert net.history[-1]["kl_weight"] == search.best_params_["vbdclassifier__kl_weight"]


def test_a_grid_search_chooses_among_targets_in_a_pipeline():
    x, y = features()
    net = classifier(
        network, max_epochs=4, batch_size=16, train_split=None, rate_lr=0.05, target=vbdrop.Target(weights=2)
    )
    grid = {"vbdclassifier__target": [vbdrop.Target(weights=2), vbdrop.Target(weights=4)]}
    search = GridSearchCV(make_pipeline(StandardScaler(), net), grid, cv=2, error_score="raise").fit(x, y)
    best = search.best_estimator_[-1]
    small = vbdrop.compress(best.module_, torch.from_numpy(x[:4])).model
    weights = sum(int(m.weight.count_nonzero()) for m in small.modules() if isinstance(m, nn.Linear))
    assert 0 < weights <= (6 * 8 + 8 * 3) / search.best_params_["vbdclassifier__target"].weights


def test_a_fitted_net_can_be_pickled_and_compressed():
    x, y = features()
    net = classifier(network).fit(x, y)
    again = pickle.loads(pickle.dumps(net))
    assert np.array_equal(again.predict_proba(x), net.predict_proba(x))
    small = vbdrop.compress(net.module_, torch.from_numpy(x[:4]))
    torch.testing.assert_close(small.model(torch.from_numpy(x)), net.module_.eval()(torch.from_numpy(x)))


def test_training_goes_on_with_partial_fit():
    net = classifier(network).fit(*features())
    net.partial_fit(*features())
    assert len(net.history) == 4


def test_a_regressor_learns_a_line():
    x = torch.linspace(-1, 1, 200)[:, None].numpy()
    y = 2 * x + 1
    options = {"optimizer": torch.optim.Adam, "lr": 0.05, "max_epochs": 30, "batch_size": 20, "verbose": 0}
    net = VBDRegressor(nn.Linear(1, 1), modes=vbdrop.Rates(), train_split=None, **options).fit(x, y)
    assert net.score(x, y) > 0.95


def test_a_summed_loss_is_refused():
    with pytest.raises(ValueError, match="`criterion__reduction` must be 'mean'"):
        classifier(network, criterion__reduction="sum").fit(*features())


def test_with_a_target_the_log_variances_are_quick_enough_to_die():
    """Where they are as slow as the weights, the target is met by a cut alone, of weights that the network needs."""
    x, y = features()
    net = classifier(network, target=vbdrop.Target(weights=3), max_epochs=8, batch_size=16, train_split=None, lr=1e-3)
    net.fit(x, y)
    rates = {id(p) for name, p in net.module_.named_parameters() if name.endswith("log_sigma2")}
    lrs = {group["lr"] for group in net.optimizer_.param_groups for p in group["params"] if id(p) in rates}
    assert len(lrs) == 1
    assert lrs.pop() > 0.01


def test_a_target_is_reached_within_the_epochs():
    x, y = features()
    target = vbdrop.Target(weights=3)
    net = classifier(network, target=target, max_epochs=8, batch_size=16, train_split=None, rate_lr=0.05).fit(x, y)
    assert clone(net).target == target
    small = vbdrop.compress(net.module_, torch.from_numpy(x[:4])).model
    weights = sum(int(m.weight.count_nonzero()) for m in small.modules() if isinstance(m, nn.Linear))
    assert 0 < weights <= (6 * 8 + 8 * 3) / 3
    assert "dead_share" in net.history[-1]


def group_lrs(net):
    return [(len(group["params"]), group["lr"]) for group in net.optimizer_.param_groups]


def test_a_scheduler_moves_the_group_of_a_target_too():
    schedule = LRScheduler(policy=torch.optim.lr_scheduler.LambdaLR, lr_lambda=lambda epoch: 0.5**epoch)
    net = classifier(
        network, optimizer=torch.optim.Adam, target=vbdrop.Target(weights=2), max_epochs=2, callbacks=[schedule]
    ).fit(*features())
    (_, weights), (_, rates) = group_lrs(net)
    assert (weights, rates) == pytest.approx((LR / 4, 0.5 / 4))


def test_a_target_is_reached_within_one_epoch():
    net = classifier(network, target=vbdrop.Target(weights=2), max_epochs=1, batch_size=16).fit(*features())
    assert net.history[-1]["kl_weight"] == 0  # as it is after the cut


def test_parameters_of_a_net_that_goes_on_can_be_changed():
    net = classifier(network, kl_weight=1.0, rate_lr=0.2, max_epochs=1, warm_start=True).fit(*features())
    net.set_params(kl_weight=0.25, lr=0.05).fit(*features())
    assert [row["kl_weight"] for row in net.history] == [1.0, 0.25]
    assert group_lrs(net) == [(4, 0.05), (2, 0.2)]


def test_with_a_target_no_callback_may_bring_back_an_earlier_epoch():
    net = classifier(network, target=vbdrop.Target(weights=2), callbacks=[EarlyStopping(load_best=True)])
    with pytest.raises(ValueError, match="`load_best` of a callback must be False with a target"):
        net.fit(*features())


def test_a_target_takes_inputs_by_name():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, first):
            return self.net(first)

    x, y = features()
    net = classifier(Named, target=vbdrop.Target(weights=2), max_epochs=1, batch_size=16).fit({"first": x}, y)
    assert net.history[-1]["kl_weight"] == 0
