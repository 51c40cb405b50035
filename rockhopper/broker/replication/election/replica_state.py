"""A replica's knowledge of itself, and which part of it is on disk."""

from dataclasses import dataclass

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_set import NOTHING_SEEN, Replica, SeenState


@dataclass(slots=True)
class ReplicaState:
    """The state of one replica; only its machine changes it.

    ``voted_epoch``, ``epochs`` and ``is_clean`` are on disk and synced before anything depends on
    them. ``replicated_offset`` may be older after a start.
    """

    me: Replica
    incarnation: str
    voted_epoch: int = 0
    """The largest epoch it has voted for."""
    epochs: tuple[Epoch, ...] = ()
    is_clean: bool = True
    """Whether it still has everything it ever acknowledged; False after a power cut."""
    log_start: int = 0
    log_end: int = 0
    acknowledgeable_offset: int = 0
    """The offset this replica may acknowledge: written (async) or fsynced (sync)."""
    replicated_offset: int = 0
    """The offset up to which it knows the log to be confirmed."""
    is_away: bool = False
    """Whether a master's bytes cannot be appended now because the store is being reopened."""
    is_fenced: bool = False
    """Whether its log contradicts what was confirmed.

    It takes no part until an operator decides.
    """
    has_left: bool = False
    """Whether it was served alone after it was in a set: it is fenced, but may begin a new set."""
    is_failing: bool = False
    """Whether its disk rejects writes of its durable state: it is not elected meanwhile."""
    seen_state: SeenState = NOTHING_SEEN
    """The newest state of the set that it saw; on disk soon afterwards."""
    priority: int = 0
    """The setting haPriority."""

    @property
    def may_lead(self) -> bool:
        """Whether no local problem prevents this replica from being elected."""
        return not self.is_fenced and not self.is_failing
