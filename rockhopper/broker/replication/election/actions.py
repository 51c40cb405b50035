"""What the machine asks of the world. Each is answered by a call of the machine, or by none."""

from dataclasses import dataclass

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.messages import Message
from rockhopper.broker.replication.election.replica_set import Leader, SetState, Sight


@dataclass(frozen=True, slots=True)
class Open:
    """Connect to a replica's HA port: ``opened``, ``unreachable`` or ``refused_connection``."""

    replica_id: int


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection; nothing that is still on its way is delivered."""

    link: int


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message on a connection, behind what was sent before."""

    link: int
    message: Message


@dataclass(frozen=True, slots=True)
class Stream:
    """Send the log from an offset on, and what comes, with the epoch and what is confirmed."""

    link: int
    start_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Promise:
    """Put an epoch on disk, synced: ``promised``."""

    epoch: int


@dataclass(frozen=True, slots=True)
class NoteSight:
    """Put on disk which state of the set was seen; nothing waits for it."""

    sight: Sight


@dataclass(frozen=True, slots=True)
class EnterEpoch:
    """Put the table of epochs on disk, synced, before anything is written: ``entered``."""

    epochs: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut the log, then put the table of epochs on disk, both synced: ``log_is_cut``.

    With *seed* the replica marks itself unclean first, on disk; then nothing of its log stays, and
    the new one begins at the offset.
    """

    end_offset: int
    epochs: tuple[Epoch, ...]
    seed: bool = False


@dataclass(frozen=True, slots=True)
class NoteClean:
    """Take the mark of an unclean replica from the disk, synced."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Put on disk, synced, that the replica is unclean, and that its log stands in no epoch.

    What it saw of the set's state is forgotten: it takes whatever the engine has now.
    """


@dataclass(frozen=True, slots=True)
class Campaign:
    """Ask the engine for the mastership by compare-and-swap: ``campaigned``.

    It may only succeed if the state has that version still, and nobody has the lease, or the one
    that is displaced.
    """

    state: SetState
    version: int
    displaced: Leader | None


@dataclass(frozen=True, slots=True)
class Alter:
    """Ask the engine for another in-sync set by compare-and-swap: ``altered``."""

    state: SetState
    version: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Renew the lease, which the engine gives again if it was lost and the state is the same."""

    version: int


@dataclass(frozen=True, slots=True)
class Release:
    """Give the lease of an epoch back: another replica may be elected at once."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read the set from the engine: ``saw``."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Begin a master's work."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Resign:
    """End a master's work; one line of log says why."""

    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """What the log holds up to an offset is confirmed, and may be seen and acknowledged."""

    offset: int


@dataclass(frozen=True, slots=True)
class Alarm:
    """What a person must see."""

    text: str


Action = (
    Open
    | Close
    | Send
    | Stream
    | Promise
    | NoteSight
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
