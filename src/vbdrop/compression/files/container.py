"""The outer layer of a file: safetensors with a header, checked before anything is created from it."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as from_safetensors
from torch import Tensor

from vbdrop.compression.files.format import KEY, OWN_DTYPES, VERSION, FileFormatError
from vbdrop.compression.files.limits import Limits, check_depth

HEADER_LIMIT = 2**24
"""The largest number of bytes in all headers; real models have far fewer."""

_OPTIONAL = {"tied": dict, "arguments": dict, "dtype": str, "uncast": list}
_ENTRIES = {"class": str, "plan": dict, "lists": list, "sum": str, **_OPTIONAL}


def read_container(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the header and the tensors of a file.

    Returns:
        The header, with the types of its entries checked and the optional ones filled in, and the tensors.

    Raises:
        FileFormatError: If it is not such a file, it is damaged, or it has a later version.
    """
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    if len(content) < 10 or length > min(len(content) - 8, HEADER_LIMIT):
        raise FileFormatError(f"{path.name} is not a safetensors file, or only the beginning of one.")
    limits = Limits(len(content))
    limits.check_text(content[8 : 8 + length], f"the header of {path.name}")
    try:
        text = json.loads(content[8 : 8 + length])["__metadata__"][KEY]
        if not isinstance(text, str):
            raise TypeError
        limits.check_text(text.encode(), f"the header of {path.name}")
        header = json.loads(text)
    except (KeyError, TypeError) as error:
        raise FileFormatError(f"{path.name} must be a safetensors file with the metadata {KEY!r}.") from error
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"the header of {path.name} is not JSON: {error}") from error
    check_depth(header)
    header = _checked(header)
    total = header.pop("sum")
    try:
        tensors = from_safetensors(content)
        del content
        found = checksum(header, tensors)
    except (SafetensorError, AssertionError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path.name} is damaged: {error}") from error
    if total != found:
        raise FileFormatError(f"{path.name} is damaged: its checksum does not match its content.")
    return {"arguments": None, "dtype": None, "uncast": [], "tied": {}, **header}, tensors


def checksum(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """A checksum of everything in a file."""
    digest = hashlib.sha256(json.dumps(header, separators=(",", ":")).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _checked(header: Any) -> dict[str, Any]:  # noqa: ANN401 -- whatever a file holds
    version = header.get("version") if isinstance(header, dict) else None
    if type(version) is not int or version < 1:
        raise FileFormatError(f"the header must have a version, 1 or later; got {version!r}.")
    if version > VERSION:
        raise FileFormatError(f"the file has version {version}; this vbdrop reads up to {VERSION}: update it.")
    for name, kind in _ENTRIES.items():
        if not isinstance(header.get(name), kind) and not (name in _OPTIONAL and name not in header):
            raise FileFormatError(f"{name!r} must be a {kind.__name__} in the header; got {header.get(name)!r}.")
    if "dtype" in header and header["dtype"] not in OWN_DTYPES:
        raise FileFormatError(f"'dtype' must be one of {', '.join(OWN_DTYPES)} in the header; got {header['dtype']!r}.")
    for entry, names in (("tied", header.get("tied", {}).values()), ("uncast", header.get("uncast", []))):
        if not all(isinstance(name, str) for name in names):
            raise FileFormatError(f"{entry!r} must have names in the header.")
    for entry in header["lists"]:
        if not (isinstance(entry, list) and len(entry) == 2 and all(type(n) is int and n >= 0 for n in entry)):
            raise FileFormatError(f"'lists' must have pairs of numbers in the header; got {entry!r}.")
    return dict(header)
