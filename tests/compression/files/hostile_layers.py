"""Changes of files that name layers with sizes of their own: recurrent layers, norms that count, open attention."""

import json
import random
from typing import Any

import torch
from torch import Tensor, nn

import vbdrop
from vbdrop.compression.files.format import LISTS
from vbdrop.layers import Gate

NUMBERS = ("count", "from_end", "rms", "scaled", "num_heads", "embed_dim", "hidden_size", "input_size", "proj_size")
LARGE = (2**12, 2**20, 2**24, 2**28, 2**31, 2**40, 2**62)
KINDS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


class Stream(nn.Module):
    """A residual stream behind norms, with attention and recurrent layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.ff = nn.Linear(5, 12), nn.Linear(12, 12)
        self.norm, self.rms, self.free = nn.LayerNorm(12), nn.RMSNorm(12), nn.LayerNorm(12, elementwise_affine=False)
        self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
        self.lstm = nn.LSTM(12, 6, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(12, 5, bidirectional=True, batch_first=True)
        self.head = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.ff(self.norm(x))
        read = self.rms(x)
        x = x + self.attention(read, read, read, need_weights=False)[0]
        return self.head(self.gru(self.lstm(self.free(x))[0])[0])


@torch.no_grad()
def smaller_stream(inputs: Tensor) -> nn.Module:
    """A converted stream of which channels, heads and units are dead."""
    torch.manual_seed(0)
    model = Stream().eval()
    vbdrop.convert_(model, vbdrop.Units(), example_inputs=inputs)
    for gate in model.modules():
        if isinstance(gate, Gate):
            gate.log_sigma2[torch.rand(len(gate.weight)) < 0.4] = 20
    return model


def trim(header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Leave only the tensors that the program uses, so that the file is not refused for the others."""
    used = [(node[1], node[2]) for node in header["plan"]["nodes"]]
    modules = tuple(f"{target}." for op, target in used if op == "call_module")
    names = {target for op, target in used if op == "get_attr"}
    for name in list(tensors):
        stored = name.removesuffix(":at")
        if stored != LISTS and stored not in names and not stored.startswith(modules):
            del tensors[name]
    header["tied"] = {name: other for name, other in header.get("tied", {}).items() if name in names}
    buffers = header["plan"].get("buffers", {})
    header["plan"]["buffers"] = {name: entry for name, entry in buffers.items() if name in names}


def changed_numbers(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Other numbers of units, heads and counted channels, of modules that have them and of others."""
    said = header["plan"].setdefault("set", {})
    paths = sorted({*said, *(name.rpartition(".")[0] for name in tensors if name != LISTS), "free", "attention"})
    for _ in range(rng.randint(1, 2)):
        numbers = said.setdefault(rng.choice(paths), {})
        kind = rng.randrange(3)
        if kind == 0 and numbers:
            name = rng.choice(sorted(numbers))
            numbers[name] = rng.choice([0, 1, numbers[name] - 1, numbers[name] + 1, rng.choice(LARGE)])
        elif kind == 1:
            numbers[rng.choice(NUMBERS)] = rng.choice([0, 1, 2, 7, 12, rng.choice(LARGE)])
        else:
            sizes = rng.choice([1, 7, 12, rng.choice(LARGE)]), rng.choice([1, 1, 2, 3, 9]), rng.choice([0, 1])
            numbers |= dict(zip(NUMBERS[:3], sizes, strict=True)) | {"scaled": rng.choice([0, 7, 12, *LARGE])}


def changed_cuts(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Weights of a layer that do not fit each other: cut in other places, with tensors to match."""
    cuts, plan_lists = header["plan"].get("cut", {}), len(header["lists"])
    names = sorted(name for name in cuts if name in tensors) or sorted(tensors)
    for name in rng.sample(names, min(len(names), rng.randint(1, 3))):
        tensor = tensors[name]
        axis = rng.randrange(max(tensor.dim(), 1))
        if not tensor.dim():
            continue
        size = rng.choice([1, 2, tensor.shape[axis] - 1, tensor.shape[axis] + 1, 2 * tensor.shape[axis]])
        index = torch.arange(max(size, 0)) % max(tensor.shape[axis], 1)
        tensors[name] = tensor.index_select(axis, index)
        if rng.random() < 0.8 and name in cuts:  # the plan says so, too: as the whole shape, or by another list
            shape = list(tensors[name].shape)
            by_list = [cuts[name][0], {str(axis): rng.randrange(max(plan_lists, 1))}]
            cuts[name] = rng.choice([[shape], by_list])


def recurrent_call(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """A program that calls a recurrent operation with tensors of its own, most of which have the right shapes."""
    kind, hidden, inputs = rng.choice(sorted(KINDS)), rng.choice([1, 2, 3, 5]), rng.choice([1, 4, 5])
    gates, biases, layers, both = KINDS[kind], rng.random() < 0.5, rng.choice([1, 1, 2]), rng.random() < 0.3
    is_cell = rng.random() < 0.3
    rows, directions = gates * hidden, 1 + both
    states = [[2, hidden] if is_cell else [layers * directions, 2, hidden]] * (2 if kind == "lstm" else 1)
    shapes = [[2, inputs] if is_cell else [2, 6, inputs], *states]
    for layer in range(1 if is_cell else layers):
        for _ in range(1 if is_cell else directions):
            entering = hidden * directions if layer else inputs
            shapes += [[rows, entering], [rows, hidden], *([[rows], [rows]] if biases else [])]
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        wrong = rng.choice(shapes)
        if wrong:
            wrong[rng.randrange(len(wrong))] = rng.choice([0, 1, 1, 2, 3, 7])
    if rng.random() < 0.2:
        shapes = [[1 if size == rows else size for size in shape] for shape in shapes]
    nodes: list[Any] = [["x", "placeholder", "x"]]
    buffers = {f"own{number}": ["float32", shape] for number, shape in enumerate(shapes)}
    tensors |= {name: torch.rand(shape) for name, (_, shape) in buffers.items()}
    nodes += [[f"n{name}", "get_attr", name] for name in buffers]
    values = [{"#": number} for number in range(1, len(nodes))]
    given, hx, weights = values[0], values[1 : 1 + len(states)], values[1 + len(states) :]
    hx = hx if kind == "lstm" else hx[0]
    call = [f"aten.{kind}_cell.default", [given, hx, *weights]]
    if not is_cell:
        number = rng.choice([layers, layers, layers, 1, 3, {"#": 0}])
        call = [f"aten.{kind}.input", [given, hx, weights, biases, number, 0.0, False, both, True]]
    nodes.append(["called", "call_function", *call])
    nodes.append(["result", "output", "output", [{"#": len(nodes) - 1}]])
    header["plan"] = {"nodes": nodes, "buffers": buffers}
    trim(header, tensors)


def called_modules(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """A program that calls modules of the model in any order, and reads what they return."""
    nodes: list[Any] = [["x", "placeholder", "x"]]
    paths = sorted({name.rpartition(".")[0] for name in tensors if name != LISTS} - {""} | {"free", "lstm"})
    for _ in range(rng.randint(1, 4)):
        last = {"#": rng.choice([len(nodes) - 1, rng.randrange(len(nodes))])}
        nodes.append([f"n{len(nodes)}", "call_module", rng.choice(paths), [last]])
        if rng.random() < 0.5:
            key = rng.choice([0, 0, 1, -1, 2**40, "x"])
            nodes.append([f"n{len(nodes)}", "call_function", "operator.getitem", [{"#": len(nodes) - 1}, key]])
    nodes.append(["result", "output", "output", [{"#": len(nodes) - 1}]])
    header["plan"] = json.loads(json.dumps(header["plan"])) | {"nodes": nodes, "buffers": {}}
    trim(header, tensors)


LAYER_CHANGES = (changed_numbers, changed_cuts, recurrent_call, called_modules)
