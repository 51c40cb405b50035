"""Faults of replica sets: processes of brokers and etcd, whose hosts are cut off from each other.

``rounds.py`` is the fault that the registry knows; ``set_of_replicas.py`` starts and ends the
processes, on ``machines.py`` with disks and clocks of their own and a ``network.py`` that can be
cut; ``abilities.py`` says which faults can be made here, ``nemesis/`` makes them, ``clients/`` adds
to the load. ``observing.py`` asks the replicas how they are, ``logs.py`` reads the files that they
leave, ``checker.py`` judges.
"""
