"""The suite of faults: ``make chaos`` for two minutes, ``make chaos-long`` for a night.

Each fault is a module with a function ``rounds(workshop, seed)`` that yields an Outcome for each
time that it did its worst; ``registry.py`` lists them. What a broker acknowledged stands in a
Ledger, what is left of it is read back from a broker on the same store, and ``verdict.judge`` holds
the one against the other.
"""
