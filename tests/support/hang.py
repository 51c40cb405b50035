"""The timeout of tests that wait for an event: a bound on hangs, not a measurement.

Working code comes nowhere near it, on a machine four times slower or beside thirty busy processes.
"""

HANG_S = 600.0
PATIENT_MS = 60_000
"""A timeout for code that is not tested for timing out, because machines are slow at times."""
