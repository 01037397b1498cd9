"""The data sets."""

from vbdrop.data.digits import Digits, digits

__all__ = ["Digits", "digits"]
