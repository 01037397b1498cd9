"""What several methods share: checks, masks, gates, stages of a run, distributions."""
