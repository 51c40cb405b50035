"""Measurements: `python -m benchmarks.bench --help`."""
