"""What the traced graph shows about a model: its channels, which of them are constant, and which are needed."""

from vbdrop.analysis.rules import register_rule

__all__ = ["register_rule"]
