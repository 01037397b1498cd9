"""Bilinear layers, which multiply two inputs."""

from torch import fx, nn

from vbdrop.analysis.channel_facts import ChannelFacts, Follower
from vbdrop.analysis.channels import Channels
from vbdrop.analysis.graph import arguments_of, size_of
from vbdrop.analysis.layer_shapes import owner
from vbdrop.analysis.rules.products import entering

FEATURES = ("out_features", "in1_features", "in2_features")
"""The attributes with the sizes of the weight's axes, in order."""


def bilinear(facts: ChannelFacts, node: fx.Node) -> Channels | None:
    """A bilinear layer loses outputs that nothing reads, and inputs whose weights are all zero."""
    call = arguments_of(node)
    weight, name = facts.tensor(call["weight"]), facts.name(call["weight"])
    reason = facts.why_fixed(call["weight"], call["bias"])
    path = "" if name is None else owner(name)
    if reason is None and type(facts.model.get_submodule(path)) is not nn.Bilinear:
        reason = "its weight does not belong to a Bilinear"
    if reason or weight is None or name is None:
        facts.keep(node, reason or "its weight is computed in the forward")
        return None
    axis = len(size_of(node)) - 1
    outputs = Channels.varying(axis, facts.units_along(name, 0))
    sides = [entering(facts, call[source], axis) for source in ("input1", "input2")]
    used = (weight != 0).any(0)
    for inputs, reads in zip(sides, (used.any(1), used.any(0)), strict=True):
        facts.pinned.append(inputs.units[reads])
        facts.kept_for.append((inputs.units[reads], "a bilinear layer reads them"))
    for number, channels in enumerate((outputs, *sides)):
        facts.tie_tensor(name, number, channels.units)
        facts.followers.append(Follower(node, name, number, channels.units))
    if (bias := facts.name(call["bias"])) is not None:
        facts.tie_tensor(bias, 0, outputs.units)
        facts.followers.append(Follower(node, bias, 0, outputs.units))
    facts.other_writers.setdefault(name, outputs.units)
    facts.attributes[path] = dict(zip(FEATURES, (outputs, *sides), strict=True))
    return outputs
