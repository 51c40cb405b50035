"""A broker's role in its replica set as name servers should advertise it.

A set consists of several brokers with one brokerName. Clients know the master as id 0, and each
follower by the id of its replica. The set member fills this in from the consensus engine's view, so
a new master is known before it has registered anywhere.
"""

from collections.abc import Mapping
from typing import NamedTuple

MASTER_ID = 0


class Advertisement(NamedTuple):
    """One broker of a set; without arguments, a standalone broker."""

    replica_id: int = 0
    """Above 0 in a set."""
    leads_in: int = 0
    """The epoch in which this broker considers itself the master; 0 while it does not."""
    elected_in: int = 0
    """The epoch of the newest election that it knows from the engine."""
    elected_id: int = 0
    """The replica id of the elected master; 0 if not known."""
    addresses: Mapping[int, str] = {}
    """The client addresses of the running replicas, by replica id; its own entry is ignored."""
    shows_followers: bool = True
    """Whether routes include followers."""
    slaves_port: int = 0
    """The port for RocketMQ's slaves of a standalone broker; 0 if slaves are not allowed."""

    @property
    def is_in_set(self) -> bool:
        """Whether other brokers of this name are its replicas, not a configuration error."""
        return self.replica_id > 0

    @property
    def shares_name(self) -> bool:
        """Whether other brokers of this name with their own ids are valid."""
        return self.is_in_set or self.slaves_port > 0

    @property
    def is_leading(self) -> bool:
        """Whether it is the master; a later election than its own contradicts that."""
        return not self.is_in_set or (self.leads_in > 0 and self.leads_in >= self.elected_in)

    @property
    def epoch(self) -> int:
        """The stateVersion of its registration."""
        return max(self.leads_in, self.elected_in)

    @property
    def broker_id(self) -> int:
        """The id by which clients know this broker."""
        return MASTER_ID if self.is_leading else self.replica_id

    @property
    def is_shown(self) -> bool:
        """Whether routes include this broker."""
        return self.is_leading or self.shows_followers

    def _find_registered_master(
        self, registered: Mapping[int, str], registered_epoch: int
    ) -> str | None:
        return registered.get(MASTER_ID) if registered_epoch >= self.epoch else None

    def members(
        self, own_address: str, registered: Mapping[int, str], registered_epoch: int
    ) -> dict[int, str]:
        """Return the address by broker id of all brokers to advertise.

        *registered* are the registrations of other brokers of this name, and *registered_epoch* is
        the epoch of the master among them. A master of an earlier epoch than this broker's is
        ignored; one of a later epoch takes precedence.
        """
        if self.slaves_port:
            slaves = {number: at for number, at in registered.items() if number != MASTER_ID}
            return {MASTER_ID: own_address, **dict(sorted(slaves.items()))}
        addresses = {**self.addresses, self.replica_id: own_address}
        leader = self._leader_id() if registered_epoch <= self.epoch else 0
        master = addresses.get(leader) if leader else None
        if master is None:
            master = self._find_registered_master(registered, registered_epoch)
        found = {MASTER_ID: master} if master is not None else {}
        if self.shows_followers:
            found |= {
                number: address
                for number, address in sorted({**registered, **addresses}.items())
                if number not in (MASTER_ID, leader) and address != master
            }
        return found

    def _leader_id(self) -> int:
        if self.is_leading:
            return self.replica_id
        # An elected replica does not lead yet: it must open its log first.
        return self.elected_id if self.elected_id != self.replica_id else 0


ALONE = Advertisement()
