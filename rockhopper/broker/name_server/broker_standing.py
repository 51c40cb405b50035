"""What a broker is within its replica set at this moment, as name services are to show it.

A set is several brokers of one brokerName: clients know the master as id 0 and each follower by the
id of its replica. Who runs the set fills this in from what the engine of consensus says, so that a
new master is known before it has registered anywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTER_ID = 0


@dataclass(frozen=True, slots=True)
class BrokerStanding:
    """One broker of a set; without arguments a broker of its own, which is in none."""

    replica_id: int = 0
    """Above 0 in a set."""
    leads_in: int = 0
    """The epoch in which it leads by its own account, 0 while it does not."""
    elected_in: int = 0
    """The epoch of the newest election that it knows of, by the engine."""
    elected_id: int = 0
    """The replica id of who was elected, 0 while that is not known."""
    addresses: Mapping[int, str] = field(default_factory=dict)
    """Where clients reach the replicas that run, by replica id; its own does not count."""
    shows_followers: bool = True
    """Whether clients are told of followers."""
    slaves_port: int = 0
    """Of a broker that is in no set: where RocketMQ's slaves follow it; 0 if none may."""

    @property
    def is_in_set(self) -> bool:
        """Whether other brokers of this name are its replicas, and no mistake."""
        return self.replica_id > 0

    @property
    def shares_name(self) -> bool:
        """Whether other brokers of this name, under ids of their own, are no mistake."""
        return self.is_in_set or self.slaves_port > 0

    @property
    def is_leading(self) -> bool:
        """Whether it is the master: a later election than its own contradicts it."""
        return not self.is_in_set or (self.leads_in > 0 and self.leads_in >= self.elected_in)

    @property
    def epoch(self) -> int:
        """The stateVersion of what it registers."""
        return max(self.leads_in, self.elected_in)

    @property
    def broker_id(self) -> int:
        """The id that clients know this broker by."""
        return MASTER_ID if self.is_leading else self.replica_id

    @property
    def is_shown(self) -> bool:
        """Whether clients are told of this broker."""
        return self.is_leading or self.shows_followers

    def members(
        self, own_address: str, registered: Mapping[int, str], registered_epoch: int
    ) -> dict[int, str]:
        """Address by broker id of all that clients are told of.

        *registered* is what other brokers of the name have registered, the master among them in
        *registered_epoch*: one of an earlier epoch than this standing's is not believed, one of a
        later is believed instead.
        """
        if self.slaves_port:
            slaves = {number: at for number, at in registered.items() if number != MASTER_ID}
            return {MASTER_ID: own_address, **dict(sorted(slaves.items()))}
        addresses = {**self.addresses, self.replica_id: own_address}
        leader = self._leader_id() if registered_epoch <= self.epoch else 0
        master = addresses.get(leader) if leader else None
        if master is None and registered_epoch >= self.epoch:
            master = registered.get(MASTER_ID)
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
        # Elected is not leading yet: its own log has to be opened first.
        return self.elected_id if self.elected_id != self.replica_id else 0


ALONE = BrokerStanding()
