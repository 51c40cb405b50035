"""The suite of faults: ``make chaos`` for two minutes, ``make chaos-long`` for a night.

Each fault is a module with a function ``rounds(workshop, seed)``, which yields an Outcome for each
round; ``registry.py`` lists the faults. A Ledger records what a broker acknowledged. After the
fault, a broker on the same store returns its messages, and ``verdict.judge`` compares them with the
ledger.
"""
