"""The file of a small model: a plan and tensors in few bytes, and a reader that trusts nothing in it."""
