"""The format of a small model's file: its names, its version, and its error."""

import torch

KEY = "vbdrop"
"""The entry of the safetensors metadata that holds the header."""

LISTS = "vbdrop:lists"
"""The tensor with all lists of indices of the plan, concatenated."""

OWN_DTYPES = {"float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""The dtypes that a model may have besides float32: a fresh model is cast to it before it is filled."""

VERSION = 1
"""Files of a later version are refused."""

LONGEST_MESSAGE = 1000
"""The longest error message: it quotes the file, which may hold anything."""


class FileFormatError(ValueError):
    """Raised if a file is damaged, has a later version, or belongs to another model; nothing was loaded."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]} ...")
