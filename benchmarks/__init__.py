"""Benchmarks: each prints ratios of interleaved measurements in one process."""
