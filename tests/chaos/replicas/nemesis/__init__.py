"""Nemesis: the faults of a replica set and their timing.

``schedule.py`` chooses faults by a seed, ``scripts.py`` has named cases, and ``nemesis.py`` carries
out both; ``process_faults.py``, ``cuts.py``, ``machine_faults.py`` and ``engine_faults.py``
implement the faults.
"""
