"""Clients: what the load of a replica set does beside that of one broker (``tests.chaos.load``)."""
