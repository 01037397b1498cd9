"""`save_pretrained` of a converted model says that it loses the rates."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

import vbdrop


class Pretrained(nn.Sequential):
    """A model as those of Hugging Face: it can save itself, and has parts that can."""

    saved = None

    def save_pretrained(self, folder, state_dict=None):
        self.saved = folder, self.state_dict() if state_dict is None else state_dict
        return "saved"


def converted():
    model = Pretrained(nn.Linear(4, 3), nn.ReLU(), Pretrained(nn.Linear(3, 2)))
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=torch.randn(2, 4))
    return model


@pytest.mark.parametrize(
    "copied", [lambda model: model, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_it_warns_and_saves(copied):
    model = copied(converted())
    for part in (model, model[2]):
        with pytest.warns(UserWarning, match="a plain one without its rates and gates.*integrations.transformers"):
            assert part.save_pretrained("here") == "saved"
        assert part.saved[0] == "here"


def test_it_does_not_warn_of_tensors_that_were_chosen_nor_of_plain_models():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = converted()
        model.save_pretrained("here", state_dict={"a": 1})
        assert model.saved == ("here", {"a": 1})
        small = vbdrop.compress(model, torch.randn(2, 4)).model
        small.save_pretrained("here")
        assert "save_pretrained" not in small.__dict__
        vbdrop.deterministic_(model).save_pretrained("there")
        assert model.saved[0] == "there"


def test_a_method_that_was_set_on_the_model_itself_stays():
    model = Pretrained(nn.Linear(4, 3))
    own = model.save_pretrained = lambda folder: "own"
    vbdrop.convert_(model, vbdrop.Weights())
    assert model.save_pretrained is own
    vbdrop.deterministic_(model)
    assert model.save_pretrained is own
