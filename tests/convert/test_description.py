import json

import pytest
import torch
from tests.compression.streams import Stream, tokens
from torch import nn

import vbdrop
from vbdrop.convert.description import convert_as_described_, describe_conversion
from vbdrop.layers import Gate, NoisyLayer
from vbdrop.priors import InverseGamma, Prior


def network():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 2))


CONVERSIONS = {
    "weights": [vbdrop.Weights(threshold=2.0, log_sigma2=-7.0, prior=InverseGamma(shape=0.2))],
    "units": [vbdrop.Units(outputs=lambda _, name: name == "0", filter_fn=lambda _, name: name == "2")],
    "both": [vbdrop.Weights(filter_fn=lambda _, name: name == "4"), vbdrop.Units(mask_in_training=True)],
    "rates": [vbdrop.Rates(per="layer", prior="log_uniform", rate=0.3)],
}


def facts(model):
    layers = [m for m in model.modules() if isinstance(m, NoisyLayer)]
    return [m.noise for m in layers], [m.mode for m in model.modules() if isinstance(m, Gate)], list(model.state_dict())


@pytest.mark.parametrize("modes", CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_fresh_model_is_converted_in_the_same_way(modes):
    model, fresh = network(), network()
    vbdrop.convert_(model, *modes)
    written = json.loads(json.dumps(describe_conversion(model)))
    convert_as_described_(fresh, written)
    assert facts(fresh) == facts(model)
    fresh.load_state_dict(model.state_dict())
    x = torch.randn(2, 3, 5, 5)
    assert torch.equal(fresh.eval()(x), model.eval()(x))


def test_layers_of_one_mode_with_other_settings_are_kept_apart():
    model, fresh = network(), network()
    for name, threshold in (("0", 1.0), ("4", 2.0)):
        vbdrop.convert_(model, vbdrop.Weights(threshold=threshold, filter_fn=lambda _, fqn, name=name: fqn == name))
    convert_as_described_(fresh, describe_conversion(model))
    assert facts(fresh) == facts(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "Noise"}, "must be a result of describe_conversion"),
        ({"layers": ["9"]}, "it has no '9'"),
    ],
)
def test_a_wrong_description_is_refused_and_changes_nothing(change, message):
    model, fresh = network(), network()
    vbdrop.convert_(model, vbdrop.Weights())
    (entry,) = describe_conversion(model)
    with pytest.raises(ValueError, match=message):
        convert_as_described_(fresh, [{**entry, **change}])
    assert list(fresh.state_dict()) == list(network().state_dict())


def test_a_prior_of_ones_own_cannot_be_written_down():
    class Own(type(vbdrop.Weights().prior)):
        pass

    assert issubclass(Own, Prior)
    model = network()
    vbdrop.convert_(model, vbdrop.Weights(prior=Own()))
    with pytest.raises(TypeError, match="must be one of hierarchical"):
        describe_conversion(model)


def test_shared_gates_are_found_again_with_example_inputs_and_never_lost():
    model, x = Stream().eval(), tokens(2, 7)
    vbdrop.convert_(model, vbdrop.Units(threshold=1.0), example_inputs=x)
    described = json.loads(json.dumps(describe_conversion(model)))
    with pytest.raises(ValueError, match="`example_inputs` must be inputs that the model accepts"):
        convert_as_described_(Stream(), described)
    twin = convert_as_described_(Stream(), described, x)
    assert list(twin.state_dict()) == list(model.state_dict())
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin.eval()(x), model(x))
    assert describe_conversion(twin) == described


def test_recurrent_layers_are_described():
    model = nn.Sequential(nn.GRU(3, 4))
    vbdrop.convert_(model, vbdrop.Units(threshold=0.5), vbdrop.Weights())
    fresh = nn.Sequential(nn.GRU(3, 4))
    convert_as_described_(fresh, describe_conversion(model))
    assert list(fresh.state_dict()) == list(model.state_dict())
    assert fresh[0].gate_hh_l0.all_gates[0].mode.threshold == 0.5
