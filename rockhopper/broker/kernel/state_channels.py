"""State channels: how a change of a feature's state reaches the followers of a replica set.

A feature writes its own files first, and then notes the change in a channel. While this broker
leads a replica set, the channel appends a record for the followers to the log; otherwise it does
nothing. The channel also determines when the followers have the change:

    STAGED      with the messages of the same commit; called while a commit is open
    CONFIRMED   before the answer: the caller awaits ``confirmed()``
    GATHERED    some milliseconds later, together with others of its kind
    ALONE       as CONFIRMED; a follower applies it before anything behind it is dispatched

A master that crashes loses at most the GATHERED changes of the last milliseconds.
"""

from enum import Enum, auto
from typing import Protocol


class Channel(Enum):
    """When the followers have a change."""

    STAGED = auto()
    CONFIRMED = auto()
    GATHERED = auto()
    ALONE = auto()


class ChannelWriter(Protocol):
    """Writes the records of a master (replication/state/state_writer.py)."""

    def write(self, kind: int, payload: bytes, channel: Channel, interval_ms: int) -> None:
        """Write a change as *channel* requires. Raises StoreError for STAGED only."""

    def flush(self) -> None:
        """Write the noted changes that are not in the log yet; no commit may be open."""

    async def confirmed(self) -> None:
        """Return once the followers have all noted changes.

        Raises:
            NotReplicatedError, StoreError: as StateChannel.confirmed.
        """


class StateChannels:
    """The channels of one broker. Without a writer, nothing is replicated."""

    def __init__(self) -> None:
        self.writer: ChannelWriter | None = None

    def channel(
        self, kind: int, channel: Channel = Channel.CONFIRMED, *, interval_ms: int = 0
    ) -> "StateChannel":
        """Return the channel for changes of one kind. *interval_ms* is for GATHERED."""
        return StateChannel(self, kind, channel, interval_ms)


class StateChannel:
    """The changes of one kind."""

    __slots__ = ("_channel", "_channels", "_interval_ms", "_kind")

    def __init__(
        self, channels: StateChannels, kind: int, channel: Channel, interval_ms: int
    ) -> None:
        self._channels = channels
        self._kind = kind
        self._channel = channel
        self._interval_ms = interval_ms

    @property
    def is_replicated(self) -> bool:
        """Whether changes are written at all; if not, a caller need not encode a payload."""
        return self._channels.writer is not None

    def note(self, payload: bytes) -> None:
        """Write a change for the followers. Raises StoreError in a STAGED channel only."""
        if (writer := self._channels.writer) is not None:
            writer.write(self._kind, payload, self._channel, self._interval_ms)

    def flush(self) -> None:
        """Write the noted changes now, so that many large ones do not fill the memory."""
        if (writer := self._channels.writer) is not None:
            writer.flush()

    async def confirmed(self) -> None:
        """Return once the followers have all noted changes; at once without followers.

        Raises:
            NotReplicatedError: they did not confirm in time. This broker keeps the change.
            StoreError: the store has failed.
        """
        if (writer := self._channels.writer) is not None:
            await writer.confirmed()
