"""The shape of a method: what it need not write itself."""

from dataclasses import dataclass

import pytest
from torch import nn

from vbdrop.train import Method, Step
from vbdrop.train.method import option


class Smallest(Method):
    def loss(self, model, batch, step):
        return model(batch.inputs).sum()


def test_a_method_is_its_loss_and_the_rest_has_defaults():
    with pytest.raises(TypeError, match="abstract"):
        Method()
    method, model = Smallest(), nn.Linear(3, 2)
    assert method.build(model) is model
    assert method.finish(model) is model
    assert method.after_step(model, Step(0, 10, 0.0, 1, 100)) is None
    model.bias.requires_grad_(False)
    assert method.groups(model, lr=0.5) == [{"params": [model.weight], "lr": 0.5}]


def test_progress_is_the_share_of_steps_done():
    steps = [Step(index, steps=4, epoch=index / 2, epochs=2, n_train=100).progress for index in range(4)]
    assert steps == [0, 0.25, 0.5, 0.75]


@dataclass(frozen=True)
class Grown(Smallest):
    rate: float = 0.5
    momentum: float = option(0.0)
    decay: float = option(0.1, absent=0.0)


def test_an_option_identifies_a_run_where_it_has_another_value_than_runs_without_it():
    assert Grown(decay=0.0).identity() == {"rate": 0.5}
    assert Grown().identity() == {"rate": 0.5, "decay": 0.1}
    assert Grown(momentum=0.9, decay=0).identity() == {"rate": 0.5, "momentum": 0.9}
    assert Grown().settings() == {"rate": 0.5, "momentum": 0.0, "decay": 0.1}
    assert Grown.absent() == {"momentum": 0.0, "decay": 0.0}
