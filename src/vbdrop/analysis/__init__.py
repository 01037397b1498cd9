"""What is known of a model from its traced graph: its channels, the constant ones, and those that are needed."""

from vbdrop.analysis.rules import register_rule

__all__ = ["register_rule"]
