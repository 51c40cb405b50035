"""What replicas say to each other, as values; wire.py has their bytes.

follower -> master   Hello, then an Ack for what it holds and whenever that grows
master -> follower   Welcome, then from the first Ack on the log, and a Beat where there is none
                     TakeOver: the follower is to lead from now on
both                 Refused: whoever reads it is not, or no longer, what it took itself for
"""

from dataclasses import dataclass

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_set import Replica


@dataclass(frozen=True, slots=True)
class Hello:
    """A follower's first message: who it is and what it has."""

    replica: Replica
    incarnation: str
    promise: int
    """The largest epoch it has agreed to: it takes nothing from a smaller one."""
    is_clean: bool
    confirmed_offset: int
    log_end: int
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class Welcome:
    """The master's answer: what to cut, and its table of epochs."""

    epoch: int
    epochs: tuple[Epoch, ...]
    log_start: int
    log_end: int
    whole_offset: int
    """Who holds so much has all that was ever confirmed. A new master does not know how far that
    went: no further than its log when it was elected."""
    common_end: int
    """Where the follower's log stops being the master's; what is behind is to be cut."""
    seed: bool = False
    """Nothing in common: the follower begins anew at ``log_start``."""


@dataclass(frozen=True, slots=True)
class Beat:
    """The head of each frame of log, alone when there is nothing to send."""

    epoch: int
    confirmed_offset: int
    sent_at_ms: int = 0
    """By the master's clock, when it is alone; 0: from an earlier release, or with log."""


@dataclass(frozen=True, slots=True)
class Ack:
    """What a follower holds, by the promise it makes: written, or flushed."""

    epoch: int
    held_offset: int
    is_clean: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is nothing to talk about; a larger epoch ends the reader's term."""

    promise: int
    why: str


@dataclass(frozen=True, slots=True)
class TakeOver:
    """A master's wish: whoever reads it asks for the mastership at once."""

    epoch: int


Message = Hello | Welcome | Beat | Ack | Refused | TakeOver
