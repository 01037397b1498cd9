"""Support for the trainers of other packages, one module for each; import the one that you need."""

from vbdrop.integrations.scalars import scalars

__all__ = ["scalars"]
