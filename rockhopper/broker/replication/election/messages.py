"""The messages between replicas, as values; wire.py encodes them.

follower -> master   Hello, then an Ack with its log's end, at first and after each growth
master -> follower   Welcome, then the log from the first Ack on, and a Beat while there is none
                     TakeOver: the follower is to lead from now on
both                 Refused: the receiver is not, or no longer, in the role it assumed
"""

from dataclasses import dataclass

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_set import Replica


@dataclass(frozen=True, slots=True)
class Hello:
    """A follower's first message: its identity and the state of its log."""

    replica: Replica
    incarnation: str
    voted_epoch: int
    """The largest epoch it has voted for: it takes nothing from a smaller one."""
    is_clean: bool
    replicated_offset: int
    log_end: int
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The master's answer: where to truncate the log, and the master's epoch table."""

    epoch: int
    epochs: tuple[Epoch, ...]
    log_start: int
    log_end: int
    whole_offset: int
    """A follower that holds the log up to here has everything that was ever confirmed.

    A new master does not know the exact confirmed offset. It is at most the end of its log when it
    was elected.
    """
    common_end: int
    """Where the follower's log diverges from the master's; the follower drops the rest."""
    seed: bool = False
    """The logs share nothing: the follower starts an empty log at ``log_start``."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The head of each frame of the log; sent alone as a heartbeat."""

    epoch: int
    replicated_offset: int
    sent_at_ms: int = 0
    """The master's time in a heartbeat; 0 from an earlier release, or with log data."""


@dataclass(frozen=True, slots=True)
class Ack:
    """The offset that a follower may acknowledge: written (async) or fsynced (sync)."""

    epoch: int
    acknowledgeable_offset: int
    is_clean: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the connection ends; a larger epoch ends the receiver's term."""

    voted_epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A master's request that the receiver campaigns at once."""

    epoch: int


Message = Hello | Welcome | Beat | Ack | Refused | TakeOver
