"""How a model becomes smaller: its tensors and optimizer state are cut and, if necessary, its forward is replaced."""
