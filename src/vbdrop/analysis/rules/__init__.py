"""What each operation does to channels: the table `RULES`, by families of operations."""

from vbdrop.analysis.rules.table import RULES

__all__ = ["RULES"]
