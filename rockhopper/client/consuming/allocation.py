"""Allocation rules: which member of a group reads which queues.

Each member computes the whole allocation from the same two sorted lists. So all clients of a group,
of any implementation, must follow one rule exactly. These are RocketMQ's rules. Example: the
members A, B and C share the queues 0 to 6.

    average      A: 0 1 2   B: 3 4   C: 5 6
    by-circle    A: 0 3 6   B: 1 4   C: 2 5
"""

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rockhopper.client.queues import MessageQueue

VIRTUAL_NODES = 10


class Allocation(Protocol):
    """A rule that divides the queues of a topic among the members of a group."""

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one member.

        Both lists are sorted; the second contains the member.
        """


def sort_clients(client_ids: Iterable[str]) -> list[str]:
    """Sort as Java sorts strings: by UTF-16 code units."""
    return sorted(client_ids, key=lambda client_id: client_id.encode("utf-16-be", "surrogatepass"))


class Average:
    """Consecutive queues for each member; the first members may get one more.

    RocketMQ's default.
    """

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See Allocation."""
        index = client_ids.index(client_id)
        size, rest = divmod(len(queues), len(client_ids))
        start = index * size + min(index, rest)
        return list(queues[start : start + size + (index < rest)])


class AverageByCircle:
    """Deals the queues out to the members in turn, like cards."""

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See Allocation."""
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class ConsistentHash:
    """Queues and members on a hash ring: few queues move when a member joins or leaves."""

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        if virtual_nodes < 1:
            raise ValueError(f"virtual_nodes is {virtual_nodes}: at least one is needed")
        self._virtual_nodes = virtual_nodes

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See Allocation."""
        ring: dict[int, str] = {}
        replicas: dict[str, int] = {}
        for member in client_ids:
            existing = replicas.get(member, 0)
            for number in range(existing, existing + self._virtual_nodes):
                ring[_md5_hash(f"{member}-{number}")] = member
            replicas[member] = existing + self._virtual_nodes
        points = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            index = bisect_left(points, _md5_hash(_java_text(queue)))
            return ring[points[index % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]


class ByMachineRoom:
    """Allocates only queues of brokers in certain rooms; broker names have the form "room@name"."""

    def __init__(self, rooms: Iterable[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See Allocation."""
        wanted = [queue for queue in queues if self._is_wanted(queue.broker_name)]
        index = client_ids.index(client_id)
        size, rest = divmod(len(wanted), len(client_ids))
        own = wanted[size * index : size * (index + 1)]
        if index < rest:
            own.append(wanted[index + size * len(client_ids)])
        return own

    def _is_wanted(self, broker_name: str) -> bool:
        room, separator, name = broker_name.partition("@")
        return bool(separator and name.rstrip("@")) and "@" not in name and room in self._rooms


class MachineRoomNearby:
    """Allocates a queue to members in its broker's room; if that has none, to all members.

    `room_of_broker` maps a broker's name to its room, `room_of_client` a client id. `inner` is the
    rule within a room.
    """

    def __init__(
        self,
        room_of_broker: Callable[[str], str],
        room_of_client: Callable[[str], str],
        inner: Allocation | None = None,
    ) -> None:
        self._room_of_broker = room_of_broker
        self._room_of_client = room_of_client
        self._inner = inner or Average()

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See Allocation."""
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(self._room_of_broker(queue.broker_name), []).append(queue)
        members_of: dict[str, list[str]] = {}
        for member in client_ids:
            members_of.setdefault(self._room_of_client(member), []).append(member)
        room = self._room_of_client(client_id)
        own: list[MessageQueue] = []
        if near := queues_of.pop(room, None):
            own += self._inner.allocate(client_id, near, members_of[room])
        for other in sorted(queues_of):
            if other not in members_of:
                own += self._inner.allocate(client_id, queues_of[other], client_ids)
        return own


class ByConfiguration:
    """Allocates the queues that the application names, regardless of the other members."""

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = frozenset(queues)

    def allocate(
        self, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """See Allocation."""
        return [queue for queue in queues if queue in self._queues]


_BY_NAME: dict[str, type[Average] | type[AverageByCircle] | type[ConsistentHash]] = {
    "average": Average,
    "by-circle": AverageByCircle,
    "consistent-hash": ConsistentHash,
}


def find_allocation(choice: str | Allocation) -> Allocation:
    """Return the rule with this name. Raises ValueError."""
    if not isinstance(choice, str):
        return choice
    rule = _BY_NAME.get(choice)
    if rule is None:
        names = ", ".join(f'"{name}"' for name in _BY_NAME)
        raise ValueError(
            f"there is no allocation {choice!r}: use {names}, or an object of "
            "rockhopper.client.consuming.allocation (ByMachineRoom, MachineRoomNearby, "
            "ByConfiguration)"
        )
    return rule()


def _java_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def _md5_hash(text: str) -> int:
    digest = hashlib.md5(text.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
