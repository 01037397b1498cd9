"""Measurements: each prints ratios that were taken in one process, interleaved."""
