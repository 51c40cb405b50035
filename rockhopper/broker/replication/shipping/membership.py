"""Membership: the identity of a replica within its set, and its settings."""

from dataclasses import dataclass

from rockhopper.broker.replication.shipping.links import SetFacts
from rockhopper.broker.server.listening.listener import OPEN, Gate
from rockhopper.broker.server.listening.outgoing import PLAIN, Outgoing


@dataclass(frozen=True, slots=True)
class Membership:
    """The identity of a replica within its set, and its settings."""

    id: int
    facts: SetFacts
    min_in_sync: int
    address: str
    """The replica's address for clients."""
    host: str = "0.0.0.0"
    ha_port: int = 0
    ha_host: str = "127.0.0.1"
    """The replica's host for the other replicas."""
    priority: int = 0
    replicas_after_power_cut: int = 0
    """Campaigning explains it."""
    settings: tuple[tuple[str, str], ...] = ()
    """Announcement explains it."""
    own_address: str = ""
    """Announcement explains it."""
    gate: Gate = OPEN
    outgoing: Outgoing = PLAIN
