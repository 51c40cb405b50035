"""Connections without `await`."""

from typing import Any

from rockhopper.client.arguments import takes
from rockhopper.client.network import sharing
from rockhopper.client.sync.face import Face


class Connections(Face[sharing.Connections]):
    """Connections that several synchronous clients share; see rockhopper.Connections.

        shared = Connections()
        producer, admin = Producer(connections=shared), Admin(connections=shared)

    A forked child opens its own connections, as the clients do.
    """

    _reopens_in_child = True
    closes_last = True

    @takes(sharing.Connections)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(sharing.Connections, *args, **kwargs)

    def current(self) -> sharing.Connections:
        """The connections of this process."""
        return self._of_this_process()
