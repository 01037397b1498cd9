"""What to remove: the plan as plain data, and how it follows from what is known of the graph."""
