"""State channels: how a change of a state reaches the followers of a replica set.

The owner of a state writes its own files first, and then notes the change in a channel. While this
broker leads a replica set, the channel appends a record for the followers to the log; otherwise it
does nothing. The channel also determines when the followers have the change:

    STAGED      with the messages of the same commit; called while a commit is open
    CONFIRMED   before the answer: the caller awaits ``wait_until_confirmed()``
    GATHERED    some milliseconds later, together with others of its kind
    ALONE       as CONFIRMED; a follower applies it before anything behind it is dispatched

A master that crashes loses at most the GATHERED changes of the last milliseconds.
"""

from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol


class Channel(Enum):
    """When the followers have a change."""

    STAGED = auto()
    CONFIRMED = auto()
    GATHERED = auto()
    ALONE = auto()


_AWAITED = Channel.CONFIRMED, Channel.ALONE


class ReplicatedTable(Protocol):
    """A table whose entries are replicated (JsonTable)."""

    path: Path

    def entry(self, name: str) -> Any:
        """Return one entry as JSON; None if there is none."""


class ChannelWriter(Protocol):
    """Writes the records of a master (replication/state/state_writer.py)."""

    @property
    def is_writing(self) -> bool:
        """Whether STAGED and GATHERED changes are still written."""

    @property
    def leads_alone(self) -> bool:
        """Whether no other broker can lead the set now."""

    def write(self, kind: int, payload: bytes, channel: Channel, interval_ms: int) -> None:
        """Write a change as *channel* requires. Raises StoreError for STAGED only."""

    def write_entry(self, table: ReplicatedTable, name: str, channel: Channel) -> None:
        """Write a changed or deleted entry of a table; if GATHERED, with its value by then."""

    def gather(self, interval_ms: int) -> None:
        """Write soon what the states have in ``State.gathered``."""

    def flush(self) -> None:
        """Write the noted changes that are not in the log yet; no commit may be open."""

    async def wait_until_confirmed(self) -> None:
        """Return once the followers have all noted changes.

        Raises:
            NotReplicatedError, StoreError: as StateChannel.wait_until_confirmed.
        """


class StateChannels:
    """The channels of one broker. Without a writer, nothing is replicated."""

    def __init__(self) -> None:
        self.writer: ChannelWriter | None = None

    def channel(
        self, kind: int, channel: Channel = Channel.CONFIRMED, *, interval_ms: int = 0
    ) -> "StateChannel":
        """Return the channel for changes of one kind.

        *interval_ms* is for GATHERED; 0: as the settings have it (haStateInterval).
        """
        return StateChannel(self, kind, channel, interval_ms)

    def table_channel(self, table: ReplicatedTable, channel: Channel) -> "TableChannel":
        """Return the channel for the entries of one table."""
        return TableChannel(self, table, channel)

    @property
    def leads_alone(self) -> bool:
        """Whether no other broker can lead now; True without a replica set."""
        return self.writer is None or self.writer.leads_alone


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
        writer = self._channels.writer
        return writer is not None and (writer.is_writing or self._channel in _AWAITED)

    def note(self, payload: bytes) -> None:
        """Write a change for the followers. Raises StoreError in a STAGED channel only."""
        if (writer := self._channels.writer) is not None:
            writer.write(self._kind, payload, self._channel, self._interval_ms)

    def gather(self) -> bool:
        """Return whether to keep a GATHERED change for ``State.gathered``, which is called soon."""
        writer = self._channels.writer
        if writer is None or not writer.is_writing:
            return False
        writer.gather(self._interval_ms)
        return True

    def flush(self) -> None:
        """Write the noted changes now, so that many large ones do not fill the memory."""
        if (writer := self._channels.writer) is not None:
            writer.flush()

    async def wait_until_confirmed(self) -> None:
        """Return once the followers have all noted changes; at once without followers.

        Raises:
            NotReplicatedError: they did not confirm in time. This broker keeps the change.
            StoreError: the store has failed.
        """
        if (writer := self._channels.writer) is not None:
            await writer.wait_until_confirmed()


class TableChannel:
    """The changed entries of one table."""

    __slots__ = ("_channel", "_channels", "_table")

    def __init__(self, channels: StateChannels, table: ReplicatedTable, channel: Channel) -> None:
        self._channels = channels
        self._table = table
        self._channel = channel

    def note(self, name: str) -> None:
        """Write a changed or deleted entry for the followers."""
        if (writer := self._channels.writer) is not None:
            writer.write_entry(self._table, name, self._channel)

    @property
    def is_awaited(self) -> bool:
        """Whether ``wait_until_confirmed`` waits for followers."""
        return self._channel in _AWAITED and self._channels.writer is not None

    async def wait_until_confirmed(self) -> None:
        """Return once the followers have all changes, unless they are GATHERED.

        Raises:
            NotReplicatedError, StoreError: as StateChannel.wait_until_confirmed.
        """
        writer = self._channels.writer
        if writer is not None and self._channel in _AWAITED:
            await writer.wait_until_confirmed()
