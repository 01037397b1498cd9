"""A layer that leaves the model with gates that others use is noticed wherever the gates would be missing."""

import copy
import io

import pytest
import torch
from torch import nn

import vbdrop
from vbdrop.layers.lost_gates import check_gates

X = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
LOST = r"those of 'head' belong to a layer that was removed or replaced"


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.aux, self.head = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        hidden = torch.relu(self.stem(x))
        return self.head(hidden) if self.aux is None else self.aux(hidden) + self.head(hidden)


def converted():
    torch.manual_seed(0)
    model = TwoHeads()
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=X)
    with torch.no_grad():
        model.aux.gate.stem_channels.weight.uniform_(0.5, 1.5)
        model.aux.gate.stem_channels.log_sigma2[:2] = 9.0
    return model.eval()


def without_aux():
    model = converted()
    model.aux = None
    return model


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.state_dict(),
        lambda model: nn.Sequential(model).state_dict(),
        lambda model: copy.deepcopy(model).state_dict(),
        lambda model: model.load_state_dict(converted().state_dict(), strict=False),
        lambda model: vbdrop.param_groups(model),
        lambda model: vbdrop.rates(model),
        lambda model: vbdrop.ELBO(model, n_train=16),
        lambda model: vbdrop.compress(model, X),
    ],
)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_gate_that_left_with_its_layer_is_missed(use, replaced):
    use(converted())
    model = without_aux()
    if replaced:
        model.aux = nn.Linear(6, 2)
    with pytest.raises(ValueError, match=LOST):
        use(model)


def test_what_the_error_advises_keeps_the_outputs_and_ends_the_watch():
    model = without_aux()
    wanted = model(X)
    vbdrop.deterministic_(model)
    torch.testing.assert_close(model(X), wanted)
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=X)
    fresh = without_aux()
    vbdrop.deterministic_(fresh)
    vbdrop.convert_(fresh, vbdrop.Units(), example_inputs=X)
    fresh.load_state_dict(model.state_dict())
    torch.testing.assert_close(fresh.eval()(X), model.eval()(X))


def test_a_layer_that_only_reads_may_leave_and_a_part_may_be_looked_at():
    model = converted()
    groups = vbdrop.param_groups(model.stem) + vbdrop.param_groups(model.aux) + vbdrop.param_groups(model.head)
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert list(model.head.state_dict()) == ["weight", "bias"]
    model.head = nn.Linear(6, 2)
    check_gates(model)
    model.load_state_dict(model.state_dict())


def test_an_elbo_of_a_part_that_lacks_gates_is_refused():
    model = converted()
    with pytest.raises(ValueError, match="or that is outside `model`"):
        vbdrop.ELBO(nn.ModuleDict({"stem": nn.Linear(4, 6), "head": model.head, "other": converted()}), n_train=16)


def test_a_plain_model_and_one_without_shared_gates_have_no_hooks():
    plain = nn.Sequential(nn.Linear(4, 6))
    vbdrop.convert_(plain, vbdrop.Units())
    for model in (plain, vbdrop.deterministic_(converted()), vbdrop.compress(converted(), X).model):
        assert not model._state_dict_pre_hooks
        assert not model._load_state_dict_pre_hooks


def test_a_model_converted_twice_is_watched_once_and_can_be_pickled():
    model = converted()
    vbdrop.convert_(model, vbdrop.Weights())
    assert len(model._state_dict_pre_hooks) == 1
    torch.save(model, file := io.BytesIO())
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    twin.load_state_dict(model.state_dict())
    twin.aux = None
    with pytest.raises(ValueError, match=LOST):
        twin.state_dict()
    model.state_dict()
