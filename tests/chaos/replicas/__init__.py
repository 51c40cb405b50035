"""Faults of replica sets: processes of brokers and etcd whose hosts are cut off from each other.

``rounds.py`` is the fault in the registry. ``set_of_replicas.py`` starts and stops the processes;
they run on ``machines.py``, with their own disks and clocks, and on a ``network.py`` that can be
cut. ``abilities.py`` determines which faults can be made here, ``nemesis/`` makes them, and
``clients/`` adds to the load. ``observing.py`` queries the replicas' status, ``logs.py`` reads
their files, and ``checker.py`` judges.
"""
