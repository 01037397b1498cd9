"""Trainers of other packages: what they need to train a converted model, each in a file that is imported by itself."""

from vbdrop.integrations.scalars import scalars

__all__ = ["scalars"]
