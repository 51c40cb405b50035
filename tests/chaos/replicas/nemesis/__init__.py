"""Nemesis: what is done to a replica set, and when.

``schedule.py`` chooses by a seed, ``scripts.py`` has cases with names, ``nemesis.py`` does what
either says; ``process_faults.py``, ``cuts.py``, ``machine_faults.py`` and ``engine_faults.py``
say how.
"""
