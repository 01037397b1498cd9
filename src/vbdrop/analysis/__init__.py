"""What is known of a model from its traced graph: its channels, the constant ones, and those that are needed."""
