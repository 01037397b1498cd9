import copy
import gc
import pickle
import weakref

import torch
from torch import nn

from vbdrop._torch_compat import has_forward_hooks
from vbdrop.objective.read_hook import ReadHook, remove_read_hooks_


class Counter:
    def __init__(self):
        self.forwards = 0

    def note_forward(self, inputs, outputs):
        self.forwards += 1


def hooked(reader=None):
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(ReadHook(reader))
    return layer


def test_only_forwards_in_training_are_reported():
    counter = Counter()
    layer, x = hooked(counter), torch.zeros(1, 2)
    layer(x)
    layer.eval()(x)
    assert counter.forwards == 1
    assert len(layer._forward_hooks) == 1


def test_a_copy_loses_its_hook_and_reports_nothing():
    counter = Counter()
    layer = hooked(counter)
    for made in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        made(torch.zeros(1, 2))
        assert len(made._forward_hooks) == 0
    assert counter.forwards == 0
    assert len(layer._forward_hooks) == 1


def test_the_hook_goes_with_its_reader():
    counter = Counter()
    layer, gone = hooked(counter), weakref.ref(counter)
    del counter
    gc.collect()
    assert gone() is None
    layer.eval()(torch.zeros(1, 2))
    assert len(layer._forward_hooks) == 0


def test_it_does_not_count_as_a_hook_that_may_change_outputs():
    assert not has_forward_hooks(hooked())
    layer = hooked()
    layer.register_forward_hook(lambda *_: None)
    assert has_forward_hooks(layer)


def test_read_hooks_are_removed_and_others_stay():
    layer = hooked()
    layer.register_forward_hook(lambda *_: None)
    remove_read_hooks_(layer)
    assert [isinstance(hook, ReadHook) for hook in layer._forward_hooks.values()] == [False]
