"""What each operation does to channels: the table `RULES`, with one file per family of operations."""

from vbdrop.analysis.rules.registered import register_rule, rule_of
from vbdrop.analysis.rules.table import RULES

__all__ = ["RULES", "register_rule", "rule_of"]
