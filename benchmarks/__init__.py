"""Measurements: `python -m benchmarks.bench --help`."""

import os

# Where this is set, each start of a broker compiles all its modules anew: 1 s in place of 0.4 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
