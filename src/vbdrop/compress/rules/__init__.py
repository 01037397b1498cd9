"""What each operation does to channels: the table `RULES`, by families of operations."""

from vbdrop.compress.rules.table import RULES

__all__ = ["RULES"]
