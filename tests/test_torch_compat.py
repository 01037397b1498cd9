"""The names that PyTorch does not promise, in the version that is installed."""

import copy

import torch
from torch import nn
from torch.autograd import forward_ad

from vbdrop._torch_compat import (
    ConvNd,
    ConvTransposeNd,
    autocast_is_on,
    flat_weight_names,
    forward_mode_is_on,
    has_forward_hooks,
    has_global_hooks,
    is_sharded,
    keep_in_copies_,
    local_shard,
    output_padding,
    schema_of,
    shard_like,
    state_dict_hooks,
    storage_id,
    transforms_are_on,
    unwrapped,
    whole_copy,
    whole_tensor,
)


def test_convolutions_have_their_common_classes():
    assert issubclass(nn.Conv2d, ConvNd)
    assert issubclass(nn.ConvTranspose2d, ConvTransposeNd)
    assert not issubclass(nn.Conv2d, ConvTransposeNd)


def test_autocast_is_seen_on_any_device():
    assert not autocast_is_on()
    with torch.autocast("cpu", torch.bfloat16):
        assert autocast_is_on()
        with torch.autocast("cpu", enabled=False):
            assert not autocast_is_on()


def test_transforms_and_forward_mode_are_seen():
    seen = []
    function = torch.func.grad(lambda x: seen.append(transforms_are_on()) or x.sum())
    torch.func.vmap(function)(torch.ones(2, 3))
    with forward_ad.dual_level():
        seen += [transforms_are_on(), forward_mode_is_on()]
    assert seen == [True, True, True]
    assert not forward_mode_is_on()
    assert not transforms_are_on()


def test_global_hooks_are_seen():
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert has_global_hooks()
    finally:
        handle.remove()
    assert not has_global_hooks()


def test_a_plain_tensor_is_its_own_shard():
    tensor = nn.Parameter(torch.ones(2))
    assert local_shard(tensor) is tensor


def test_a_model_comes_out_of_its_wrappers(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        model = nn.Linear(2, 2)
        assert unwrapped(nn.parallel.DistributedDataParallel(torch.compile(model, backend="eager"))) is model
        assert unwrapped(nn.Sequential(model)) is not model
        assert not is_sharded(model)
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        seen = []
        model.register_forward_hook(lambda *_: seen.append("own hook"))
        torch.distributed.fsdp.fully_shard(model, mesh=mesh)
        assert is_sharded(model)
        whole = whole_copy(model)
        assert type(whole) is nn.Linear
        assert not is_sharded(whole)
        assert torch.equal(whole.weight, whole_tensor(model.weight))
        whole(torch.ones(1, 2))
        assert seen == ["own hook"]
        whole.weight.data.zero_()
        assert bool(whole_tensor(model.weight).any())  # it shares no memory
        assert shard_like(torch.arange(4).view(2, 2), model.weight).tolist() == [[0, 1], [2, 3]]
    finally:
        torch.distributed.destroy_process_group()


def test_the_schema_names_the_arguments():
    assert [argument.name for argument in schema_of(torch.ops.aten.linear.default).arguments] == [
        "input",
        "weight",
        "bias",
    ]


def test_hooks_of_the_forward_are_seen():
    layer = nn.Linear(2, 2)
    handles = layer.register_forward_hook(lambda *_: None), layer.register_forward_pre_hook(lambda *_: None)
    for handle in handles:
        assert has_forward_hooks(layer)
        handle.remove()
    assert not has_forward_hooks(layer)


def test_hooks_around_state_dicts_are_seen():
    layer = nn.Linear(2, 2)
    saving, loading = state_dict_hooks(layer)
    layer.register_state_dict_pre_hook(lambda *_: None)
    assert (len(saving), len(loading)) == (1, 0)
    layer.register_load_state_dict_pre_hook(lambda *_: None)
    assert (len(saving), len(loading)) == (1, 1)


def test_the_output_padding_reaches_the_requested_size():
    layer, x = nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1), torch.ones(1, 2, 5, 5)
    padding = output_padding(layer, x, [10, 9])
    found = nn.functional.conv_transpose2d(x, layer.weight, None, layer.stride, layer.padding, padding)
    assert padding == [1, 0]
    assert found.shape == layer(x, output_size=[10, 9]).shape


def test_the_parameters_of_a_recurrent_module_are_named():
    module = nn.GRU(2, 3, num_layers=2, bidirectional=True)
    assert flat_weight_names(module) == [name for name, _ in module.named_parameters()]


def test_a_storage_has_a_number_of_its_own():
    first, second = torch.ones(2), torch.ones(2)
    assert storage_id(first.untyped_storage()) == storage_id(first[1:].untyped_storage())
    assert storage_id(first.untyped_storage()) != storage_id(second.untyped_storage())


def test_copies_of_a_traced_module_are_told():
    seen = []
    module = torch.fx.symbolic_trace(nn.Linear(2, 2))
    keep_in_copies_(module, seen.append)
    duplicate = copy.deepcopy(module)
    assert seen == [duplicate]
