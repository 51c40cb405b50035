"""How long a test waits for what has to come: a bound on hangs, not a clock.

Nothing that works comes near it, on a machine four times slower or beside thirty busy processes.
"""

HANG_S = 600.0
PATIENT_MS = 60_000
"""The time-out of what is not tested for giving up: machines are slow at times."""
