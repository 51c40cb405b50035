"""What a replica knows of itself, and what of that is on its disk."""

from dataclasses import dataclass

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_set import NOTHING_SEEN, Replica, Sight


@dataclass(slots=True)
class Standing:
    """One replica, changed by its machine only.

    On disk and synced before anything is done that rests on it: ``promise``, ``epochs`` and
    ``is_clean``. ``confirmed_offset`` may be older after a start.
    """

    me: Replica
    incarnation: str
    promise: int = 0
    """The largest epoch it has agreed to."""
    epochs: tuple[Epoch, ...] = ()
    is_clean: bool = True
    """Whether it still has all that it ever acknowledged: not after a power cut."""
    log_start: int = 0
    log_end: int = 0
    held_offset: int = 0
    """Up to where the log is by this replica's kind of promise: written, or flushed."""
    confirmed_offset: int = 0
    """Up to where it knows the log to be confirmed."""
    is_away: bool = False
    """Whether a master's bytes cannot be appended for now: the store is being opened anew."""
    is_fenced: bool = False
    """Whether its log contradicts what was confirmed: it takes no part until a person looks."""
    has_left: bool = False
    """Whether it was served alone since it was in a set: it is fenced, but may begin a new set."""
    is_failing: bool = False
    """Whether its disk does not take what it must remember: it is not elected meanwhile."""
    sight: Sight = NOTHING_SEEN
    """Of the newest state of the set that it saw: on disk soon after."""
    priority: int = 0
    """haPriority."""

    @property
    def may_lead(self) -> bool:
        """Whether nothing is wrong here that keeps this replica from being elected."""
        return not self.is_fenced and not self.is_failing
