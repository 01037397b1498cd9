"""The names that PyTorch does not promise, in the version that is installed."""

import torch
from torch import nn
from torch.autograd import forward_ad

from vbdrop._torch_compat import (
    ConvNd,
    ConvTransposeNd,
    autocast_is_on,
    forward_mode_is_on,
    has_global_hooks,
    is_sharded,
    local_shard,
    transforms_are_on,
    unwrapped,
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
        torch.distributed.fsdp.fully_shard(model, mesh=mesh)
        assert is_sharded(model)
    finally:
        torch.distributed.destroy_process_group()
