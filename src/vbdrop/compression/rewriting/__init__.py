"""How a model becomes smaller: its tensors cut, its optimizer's state too, its forward where it must be."""
