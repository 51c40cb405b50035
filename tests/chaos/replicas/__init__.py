"""Faults of replica sets: processes of brokers and etcd, whose hosts are cut off from each other.

``rounds.py`` is the fault that the registry knows; ``set_of_replicas.py`` starts and ends the
processes, ``network.py`` cuts, ``schedule.py`` chooses what is done and when, ``nemesis.py`` does
it, ``administering.py`` adds to the load what concerns administration and committed offsets,
``observing.py`` asks the replicas how they are, ``logs.py`` reads the files that they leave,
``checker.py`` judges.
"""
