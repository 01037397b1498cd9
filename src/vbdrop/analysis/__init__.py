"""What the traced graph shows about a model: its channels, and which of them are constant or needed."""

from vbdrop.analysis.rules import register_rule

__all__ = ["register_rule"]
