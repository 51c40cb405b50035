"""Clients: the load of a replica set, in addition to that of one broker (``tests.chaos.load``)."""
