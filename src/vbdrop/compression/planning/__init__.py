"""What to remove: the plan as plain data, and how it follows from the analysis of the graph."""
