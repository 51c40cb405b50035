"""The actions that the machine requests.

The docstring of an action names the machine's method that receives the result, if there is one.
"""

from dataclasses import dataclass

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.messages import Message
from rockhopper.broker.replication.election.replica_set import Leader, SeenState, SetState


@dataclass(frozen=True, slots=True)
class Open:
    """Connect to a replica's HA port: ``following.opened`` or ``following.not_opened``."""

    replica_id: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection; nothing that is still on its way is delivered."""

    link: int


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Send a message on a connection, in order after earlier ones."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class StreamLog:
    """Send the log from an offset on, continuously, with the epoch and the confirmed offset."""

    link: int
    start_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class StoreVotedEpoch:
    """Store a voted epoch on disk, synced: ``voted_epoch_stored``."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NoteSeenState:
    """Store on disk which state of the set was seen; nothing waits for this write."""

    seen_state: SeenState


@dataclass(frozen=True, slots=True)
class EnterEpoch:
    """Store the epoch table on disk, synced, before the master writes anything: ``entered``."""

    epochs: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Truncate the log, then store the epoch table, both synced: ``log_is_cut``.

    With *seed* the replica first marks itself unclean on disk. It then drops its whole log and
    begins an empty one at the offset.
    """

    end_offset: int
    epochs: tuple[Epoch, ...]
    seed: bool = False


@dataclass(frozen=True, slots=True)
class NoteClean:
    """Remove the mark of an unclean replica from disk, synced."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Mark the replica as unclean and empty its epoch table, on disk and synced.

    The replica also forgets which state of the set it saw, so it accepts whatever the engine stores
    now.
    """


@dataclass(frozen=True, slots=True)
class Campaign:
    """Ask the engine for the mastership by compare-and-swap: ``campaigned``.

    The request may succeed only if the state still has that version, and if the lease is free or
    belongs to the displaced leader.
    """

    state: SetState
    version: int
    displaced: Leader | None


@dataclass(frozen=True, slots=True)
class Alter:
    """Ask the engine to store another in-sync set by compare-and-swap: ``altered``."""

    state: SetState
    version: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the lease: ``renewed``.

    The engine grants a lost lease again if the state is unchanged.
    """

    version: int


@dataclass(frozen=True, slots=True)
class Release:
    """Release the lease of an epoch, so that another replica can be elected at once."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read the set from the engine: ``saw``."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Start a master's work."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Resign:
    """Stop a master's work and log the reason."""

    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Confirm the log up to an offset: clients may read it, and sends in it may be acknowledged."""

    offset: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """Show a problem that needs an operator."""

    text: str


Action = (
    Open
    | Close
    | SendMessage
    | StreamLog
    | StoreVotedEpoch
    | NoteSeenState
    | EnterEpoch
    | Cut
    | NoteClean
    | GiveUp
    | Campaign
    | Alter
    | Renew
    | Release
    | Read
    | Lead
    | Resign
    | Confirm
    | Alarm
)
