"""What to remove: the plan as plain data, and how it is derived from the analysis of the graph."""
