"""Files that a careless or hostile writer could make, each with a right checksum: valid ones changed by the grammar.

Run as a program it makes files, loads each and calls what loads, and prints what happened as one line of JSON:
``python -m tests.compression.files.hostile_files FOLDER COUNT SEED``.
"""

import copy
import json
import random
import resource
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as from_safetensors
from safetensors.torch import save as to_safetensors
from tests.compression.files.hostile_layers import LAYER_CHANGES, Stream, smaller_stream, trim
from torch import Tensor, nn

from vbdrop.compression.compress import compress
from vbdrop.compression.files.container import checksum
from vbdrop.compression.files.format import LISTS, FileFormatError
from vbdrop.compression.files.model_file import load, save
from vbdrop.compression.rewriting.operations import OPERATIONS, overload_of
from vbdrop.models import build

ALLOWED = 50 * 10**6
"""The bytes by which a process may grow besides ten times the file and the bytes of the model that is given."""

Parts = tuple[dict[str, Any], dict[str, Tensor]]

WILD = [
    *(0, -1, 1, 2, 7, 64, 2**20, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), 10**30),
    *(0.0, 1.5, -1e308, 1e-300, None, True, False, "", "x", "#", "node", "aten.relu.default", "weight", "forward"),
    *([], {}, [[]], [0], [-1], [2**40], [1] * 300, {"#": 0}, {"#": -1}, {"#": 10**9}, {"tuple": []}, {"dict": {}}),
    *({"float": "nan"}, {"float": "inf"}, {"dtype": "float32"}, {"dtype": "qint8"}, {"device": "meta"}),
    *({"device": "cuda:7"}, {"layout": "sparse_coo"}, {"memory_format": "channels_last"}),
]
BASES = "bases.pt"
"""The valid files, if they are already made: it takes some time."""

DTYPES = (torch.uint8, torch.int8, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.bool)
UNSAFE = (
    *(
        "aten._sparse_coo_tensor_unsafe.default",
        "aten._to_dense.default",
        "aten.save.default",
        "aten.manual_seed.default",
    ),
    *("aten.set_grad_enabled.default", "aten.from_file.default", "aten.as_strided.default", "aten.empty.memory_format"),
    *("aten.relu_.default", "aten.randn.default", "operator.attrgetter", "operator.pow", "os.system", "builtins.eval"),
)


class Mixed(nn.Module):
    """Convolution, normalization, a recurrent layer and attention, on images of 8 x 8."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.head = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        x, _ = self.lstm(x.reshape(x.shape[0], 8, 8, 8).mean(1))
        return self.head(x + torch.nn.functional.scaled_dot_product_attention(x, x, x))


class Base:
    """A valid file, its parts, and how it is loaded and called."""

    def __init__(self, path: Path, model: nn.Module | None, inputs: Tensor) -> None:
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        self.text = json.loads(content[8 : 8 + length])["__metadata__"]["vbdrop"]
        self.content, self.model, self.inputs = content, model, inputs
        stored = {} if model is None else model.state_dict()
        self.model_bytes = sum(value.numel() * value.element_size() for value in stored.values())

    def parts(self) -> Parts:
        header = json.loads(self.text)
        del header["sum"]
        return header, from_safetensors(self.content)


def bases(folder: Path) -> list[Base]:
    """Valid files: with and without a forward of their own, loaded with and without a model."""
    torch.manual_seed(0)
    found = []
    path = folder / "base.safetensors"
    perceptron = build("mlp", units=10).eval()
    with torch.no_grad():
        for layer in (*perceptron.hidden, perceptron.output):
            layer.weight.mul_(torch.rand_like(layer.weight) < 0.05)
    small = compress(perceptron, torch.rand(2, 784))
    assert small.plan.program is not None
    save(path, small.model, small.plan, arguments=perceptron.arguments)
    found.append(Base(path, None, torch.rand(2, 784)))
    mixed = Mixed().eval()
    with torch.no_grad():
        mixed.conv.weight[::3] = 0
    small = compress(mixed, torch.rand(2, 3, 8, 8))
    small.save(path)
    found.append(Base(path, Mixed(), torch.rand(2, 3, 8, 8)))
    tied = nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9))
    tied[2].weight = tied[0].weight
    save(path, tied)
    found.append(Base(path, nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Linear(9, 9)), torch.rand(2, 9)))
    sparse = build("lenet-300-100").eval()
    with torch.no_grad():
        for layer in (*sparse.hidden, sparse.output):
            layer.weight.mul_(torch.rand_like(layer.weight) < 0.01)
    save(path, sparse, arguments=sparse.arguments)
    found.append(Base(path, None, torch.rand(2, 784)))
    stream = smaller_stream(torch.rand(2, 6, 5))
    for with_program in (False, True):
        small = compress(stream, torch.rand(2, 6, 5), rewrite=with_program, rewrite_gain=0.0)
        assert (small.plan.program is not None) == with_program
        small.save(path)
        found.append(Base(path, Stream(), torch.rand(2, 6, 5)))
    return found


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every entry of nested data, as its holder and key."""
    found = []
    for key, part in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
        found.append((value, key))
        if isinstance(part, dict | list):
            found += places(part)
    return found


def changed_header(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    for _ in range(rng.randint(1, 3)):
        holder, key = rng.choice(places(header))
        kind = rng.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder[key], int):
            holder[key] += rng.choice([-1, 1, 2, 2**31, 2**62])
        elif kind == 2:
            other, other_key = rng.choice(places(header))
            holder[key] = json.loads(json.dumps(other[other_key]))
        elif kind == 3:
            holder[key] = nested(rng, rng.choice([3, 20, 70, 300]), holder[key])
        elif kind == 4 and isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(holder[key])))
        else:
            holder[key] = copy.deepcopy(rng.choice(WILD))


def nested(rng: random.Random, depth: int, value: Any) -> Any:
    for _ in range(depth):
        value = rng.choice([[value], {"tuple": [value]}, {"dict": {"a": value}}, {"a": value}])
    return value


def changed_tensors(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    for _ in range(rng.randint(1, 2)):
        name = rng.choice(sorted(tensors))
        tensor, kind = tensors[name], rng.randrange(8)
        if kind == 0:
            tensors[name] = tensor.to(rng.choice(DTYPES))
        elif kind == 1:
            tensors[name] = torch.zeros(rng.choice([(0,), (2**40, 0), (1,), (1,) * 30, (3, 0, 5), ()]))
        elif kind == 2:
            tensors.pop(name)
        elif kind == 3 and tensor.dim():
            tensors[name] = torch.cat([tensor, tensor])
        elif kind == 4:
            data = np.array(
                [rng.choice([0, 1, 7, 31, 32, 255]), *rng.randbytes(rng.choice([0, 1, 100, 5000]))], np.uint8
            )
            tensors[f"{name}:at" if rng.random() < 0.5 else name] = torch.from_numpy(data)
        elif kind == 5:
            data = np.full(rng.choice([1, 50, 20_000]), rng.choice([0, 255]), np.uint8)
            data[0] = rng.choice([0, 1, 31])
            tensors[LISTS] = torch.from_numpy(data)
            header["lists"] = [[rng.choice([1, 8 * len(data) - 8, 3]), len(data)]]
        elif kind == 6:
            other = rng.choice(sorted(tensors))
            tensors[name], tensors[other] = tensors[other].clone(), tensor.clone()
        else:
            tensors[f"{name}{rng.choice(['x', ':at', '.weight'])}"] = torch.zeros(3)


def argument(rng: random.Random, kind: str, nodes: int) -> Any:
    """A value of a kind of the schema, or now and then anything."""
    if rng.random() < 0.01:
        return copy.deepcopy(rng.choice(WILD))
    if kind.startswith("Optional["):
        kind = kind[9:-1] if rng.random() < 0.6 else "None"
    if kind.startswith("List["):
        return [argument(rng, kind[5:-1], nodes) for _ in range(rng.choice([1, 2, 2, 3, 4]))]
    small = [-1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4, 8, 784, rng.choice([2**12, 2**16, 2**20, 2**31, 2**62])]
    choices: dict[str, Callable[[], Any]] = {
        "Tensor": lambda: {"#": rng.randrange(max(nodes, 1))},
        "int": lambda: rng.choice(small),
        "float": lambda: rng.choice([0.0, 0.5, 1.0, 2.0, 1e-5, 1e30]),
        "number": lambda: rng.choice([*small, 0.5, True]),
        "bool": lambda: rng.random() < 0.1,
        "ScalarType": lambda: {"dtype": rng.choice(["float32", "float64", "int64", "bool", "complex64", "quint8"])},
        "str": lambda: rng.choice(["same", "none", "floor", "constant", "reflect", "ij,jk->ik", "bi,bj->ij", "x"]),
    }
    return choices.get(kind, lambda: None)()


def changed_program(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """More nodes before the output, of the table and of what is not in it, and an output that uses them."""
    nodes = header["plan"].setdefault("nodes", [["x", "placeholder", "x"], ["result", "output", "output", [{"#": 0}]]])
    nodes = nodes[:-1]
    names = sorted(OPERATIONS)
    for _ in range(rng.randint(1, 4)):
        target = rng.choice(UNSAFE)
        arguments = [{"#": len(nodes) - 1}]
        if rng.random() < 0.97:
            name = rng.choice(names)
            target = f"aten.{name}" if "." in name else f"aten.{name}.default"
            schema = overload_of(target)._schema.arguments
            needed = [a for a in schema if not a.has_default_value() or (not a.kwarg_only and rng.random() < 0.5)]
            arguments = [argument(rng, str(a.real_type), len(nodes)) for a in needed if not a.kwarg_only]
        nodes.append([f"n{len(nodes)}", "call_function", target, arguments])
    last = {"#": len(nodes) - 1}
    header["plan"]["nodes"] = [*nodes, ["result", "output", "output", [rng.choice([last, [last, {"#": 0}]])]]]
    trim(header, tensors)


def bomb(rng: random.Random, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Little that asks for much."""
    rng.choice(BOMBS)(rng, header, tensors)


def chain(header: dict[str, Any], tensors: dict[str, Tensor], *calls: list[Any], repeat: int = 1) -> None:
    """A program of these calls, each on the value before it, which is written as None."""
    nodes: list[Any] = [["x", "placeholder", header["plan"].get("nodes", [["", "", "x"]])[0][2]]]
    for _ in range(repeat):
        for target, *arguments in calls:
            text = json.dumps(arguments).replace("null", json.dumps({"#": len(nodes) - 1}))
            nodes.append([f"n{len(nodes)}", "call_function", target, json.loads(text)])
    header["plan"]["nodes"] = [*nodes, ["result", "output", "output", [{"#": len(nodes) - 1}]]]
    trim(header, tensors)


def doubling(rng, header, tensors):
    chain(header, tensors, ["aten.cat.default", [None, None], 0], repeat=rng.choice([5, 20, 40, 62, 100]))


def constant(rng, header, tensors):
    size = rng.choice([2**20, 2**22, 2**24, 2**31, 2**40, 2**62])
    x = {"#": 0}
    call = rng.choice(
        [
            ["aten.full.default", [size], 1.5],
            ["aten.new_zeros.default", x, [size, 4]],
            ["aten.arange.default", size],
            ["aten.repeat.default", x, [size, 1]],
            ["aten.expand.default", {"#": 0}, [size, -1, -1]],
            ["aten.constant_pad_nd.default", x, [size, size]],
            ["aten.linspace.default", 0, 1, size],
            ["aten.eye.default", size],
            ["aten.one_hot.default", x, size],
            ["aten.upsample_nearest1d.default", x, [size]],
        ]
    )
    chain(header, tensors, call, ["aten.add.Tensor", None, 1.0], ["aten.exp.default", None], repeat=rng.choice([1, 3]))


def growing(rng, header, tensors):
    outer = rng.choice(["aten.outer.default", "aten.kron.default"])
    chain(header, tensors, ["aten.flatten.using_ints", None], [outer, None, None], repeat=rng.choice([1, 2, 5, 20]))


def squaring(rng, header, tensors):
    chain(
        header, tensors, ["aten.sym_size.int", {"#": 0}, 1], *[["operator.mul", None, None]] * rng.choice([3, 30, 60])
    )


def long_program(rng, header, tensors):
    chain(header, tensors, ["aten.relu.default", None], repeat=rng.choice([500, 1400, 3000, 20_000]))


def many_cuts(rng, header, tensors):
    n, k = rng.choice([1000, 20_000]), rng.choice([10, 1000, 5000])
    tensors[LISTS] = torch.from_numpy(np.concatenate([[0], np.full(n, 255)]).astype(np.uint8))
    header["lists"] = [[8 * n, n + 1]]
    header["plan"]["cut"] = {f"t{i}": [[8 * n], {"0": 0}] for i in range(k)}


def many_buffers(rng, header, tensors):
    many_cuts(rng, header, tensors)
    cuts = header["plan"].pop("cut")
    chain(header, tensors, ["aten.relu.default", None])
    header["plan"]["buffers"] = {name: ["int64", entry[0], 0] for name, entry in cuts.items()}


def wide(rng, header, tensors):
    width = rng.choice([10**4, 10**6, 10**9, 10**15])
    header["arguments"] = rng.choice(
        [{"hidden": [width]}, {"hidden": [1] * rng.choice([900, 50_000])}, {"inputs": width}]
    )
    header["plan"] = {}
    if rng.random() < 0.5:
        header["class"] = rng.choice(["VGG", "LeNet5", "KingmaCNN"])
        header["arguments"] = {rng.choice(["width", "scale", "classes"]): rng.choice([0.05, 1, 30, 10**6, 1e300])}


def many_objects(rng, header, tensors):
    part = rng.choice([[], {}, [{}], {"": 0}, 0, "ab"])
    header[rng.choice(["more", "plan", "lists", "tied"])] = [part] * rng.choice([1000, 30_000, 300_000])


def short_norms(rng, header, tensors):
    one = {"#": 1}
    name = sorted(name for name in tensors if name.endswith("bias"))[0]
    header["plan"]["nodes"] = [
        ["x", "placeholder", "x"],
        ["b", "get_attr", name],
        ["n", "call_function", "aten._native_batch_norm_legit_no_training.default", [{"#": 0}, *[one] * 4, 0.1, 1e-5]],
        ["y", "call_function", "operator.getitem", [{"#": 2}, 0]],
        ["result", "output", "output", [{"#": 3}]],
    ]
    trim(header, tensors)


BOMBS = (
    *(doubling, constant, growing, squaring, long_program, many_cuts, many_buffers, wide, many_objects, short_norms),
)
CHANGES = (
    changed_header,
    changed_header,
    changed_tensors,
    *[changed_program] * 5,
    bomb,
    bomb,
    *LAYER_CHANGES,
    *LAYER_CHANGES,
)


def written(rng: random.Random, base: Base, path: Path) -> str:
    """Write a changed file with a right checksum; what was changed."""
    change = rng.choice(CHANGES)
    header, tensors = base.parts()
    with suppress(AttributeError, IndexError, KeyError, TypeError):  # a second change may meet what the first left
        change(rng, header, tensors)
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # deeper data can be written than read
    header["sum"] = checksum(header, tensors)
    text = json.dumps(header, separators=(",", ":"))
    sys.setrecursionlimit(usual)
    path.write_bytes(to_safetensors(tensors, {"vbdrop": text}))
    return change.__name__


def memory(entry: str) -> int:
    """The peak (VmHWM) or the present size (VmRSS) of this process in bytes."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(entry))


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def attempt(base: Base, path: Path) -> tuple[str, str]:
    """Load and call once: what came of it, and what was raised."""
    try:
        model = load(path, base.model)
    except FileFormatError as error:
        return "refused", str(error)
    except Exception as error:  # what must not happen
        return "escaped", f"{type(error).__name__}: {error}"[:300]
    try:
        with torch.no_grad():
            model(base.inputs)
    except MemoryError as error:
        return "exhausted", str(error)
    except Exception as error:  # a forward that cannot be is an ordinary error
        return "not callable", f"{type(error).__name__}: {error}"[:300]
    return "called", ""


def main(folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Make and try files; how many ended how, what must not happen, and the largest share of the allowed memory."""
    made = folder / BASES
    valid = torch.load(made, weights_only=False) if made.exists() else bases(folder)
    path = folder / "hostile.safetensors"
    for base in [*valid, *valid]:  # what the first call imports does not count
        path.write_bytes(base.content)
        assert attempt(base, path) == ("called", ""), attempt(base, path)
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + 2**31, resource.RLIM_INFINITY))
    rng = random.Random(seed)
    outcomes, wrong, largest = Counter(), [], {"growth": 0, "share": 0.0}
    for number in range(count):
        base = rng.choice(valid)
        change = written(rng, base, path)
        size = path.stat().st_size
        reset_peak()
        before = memory("VmRSS")
        outcome, said = attempt(base, path)
        growth = memory("VmHWM") - before
        allowed = ALLOWED + 10 * size + base.model_bytes
        outcomes[f"{change}: {outcome}"] += 1
        if outcome in ("escaped", "exhausted") or growth > allowed:
            shutil.copy(path, folder / f"wrong-{number}.safetensors")
            wrong.append(
                {"number": number, "change": change, "outcome": outcome, "said": said, "growth": growth, "file": size}
            )
        largest["growth"] = max(largest["growth"], growth)
        largest["share"] = max(largest["share"], growth / allowed)
    return {"outcomes": dict(outcomes), "wrong": wrong, **largest}


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
