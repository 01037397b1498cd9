"""What a file of a small model is: its names, its version, and what is said of one that is not."""

KEY = "vbdrop"
"""The entry of the safetensors metadata that holds the header."""

LISTS = "vbdrop:lists"
"""The tensor with the lists of indices of the plan, one after the other."""

VERSION = 1
"""Files of a later version are refused."""


class FileFormatError(ValueError):
    """The file is damaged, of a later version, or for another model; nothing was loaded."""
