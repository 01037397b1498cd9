"""What a file of a small model is: its names, its version, and what is said of one that is not."""

import torch

KEY = "vbdrop"
"""The entry of the safetensors metadata that holds the header."""

LISTS = "vbdrop:lists"
"""The tensor with the lists of indices of the plan, one after the other."""

OWN_DTYPES = {"float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
"""What the numbers of a model may be besides float32: a fresh model is cast to it before it is filled."""

VERSION = 1
"""Files of a later version are refused."""

LONGEST_MESSAGE = 1000
"""The letters of an error: it quotes the file, which may hold anything."""


class FileFormatError(ValueError):
    """The file is damaged, of a later version, or for another model; nothing was loaded."""

    def __init__(self, message: str) -> None:
        super().__init__(message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]} ...")
