"""Recurrent layers in the graph of the small model: if possible a call of the module, which knows its sizes."""

import operator
from typing import cast

import torch
from torch import fx

from vbdrop.analysis.channel_facts import RecurrentSite
from vbdrop.analysis.channels import Stack
from vbdrop.analysis.graph import arguments_of
from vbdrop.compression.rewriting.graph_writer import Writer
from vbdrop.compression.rewriting.program import ProgramError

aten = torch.ops.aten


def called(writer: Writer, node: fx.Node, site: RecurrentSite) -> fx.Node:
    """The call of a recurrent layer."""
    if site.whole:
        return writer.graph.create_node("call_module", site.path, (writer.value(site.source),))
    if len(site.hidden) > 1:
        raise ProgramError("a recurrent layer is not called as a module")
    call = arguments_of(node)
    batch = writer.call(aten.sym_size.int, writer.value(site.source), 0 if call["batch_first"] else 1)
    widths = [int(writer.kept(part).sum()) for part in (site.leaving[0], site.hidden[0])]
    dtype, device = (getattr(site.source.meta["val"], name) for name in ("dtype", "device"))
    options = {"dtype": dtype, "device": device}
    states = [writer.call(aten.zeros.default, [1, batch, width], **options) for width in widths]
    hx = states if isinstance(call["hx"], list | tuple) else states[0]
    arguments = {name: fx.map_arg(value, writer.value) for name, value in call.items() if name not in ("input", "hx")}
    return writer.call(node.target, writer.value(site.source), hx, *arguments.values())


def result(writer: Writer, node: fx.Node, site: RecurrentSite) -> fx.Node:
    """The output or a state of a recurrent layer; the module and the operation return them in different structures."""
    source, index = cast(fx.Node, node.args[0]), cast(int, node.args[1])
    value = writer.value(source)
    if not site.whole or index == 0:
        return writer.call(operator.getitem, value, index)
    states = writer.call(operator.getitem, value, 1)
    is_pair = "lstm" in str(source.target)
    return writer.call(operator.getitem, states, index - 1) if is_pair else states


def selected(writer: Writer, node: fx.Node) -> fx.Node:
    """One layer and direction of the states, which are no longer one tensor if their sizes differ."""
    call = arguments_of(node)
    known = writer.facts.by_node.get(call["self"])
    if not isinstance(known, Stack) or len({int(writer.kept(part).sum()) for part in known.parts}) == 1:
        return writer.copy(node)
    return writer.call(operator.getitem, writer.value(call["self"]), call["index"])
