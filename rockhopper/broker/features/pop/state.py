"""The state of pop: how groups read topics, and the lanes with their journal.

The followers of a replica set get the lanes at most 25 ms later than the master has them. The pops
and acknowledgements in that time are lost if the master dies; their messages are delivered again:

    kind  payload
      9   POPPED: records of the journal (lanes.py), each of them once
     10   POPPED_ALL: empty. Nothing is popped except what the following records contain
"""

import struct
from collections.abc import Callable, Iterator

import msgspec
import structlog

from rockhopper.broker.feature import State
from rockhopper.broker.features.pop.compaction import Compaction
from rockhopper.broker.features.pop.lanes import Lanes, lane_record, strip_copy
from rockhopper.broker.features.pop.request_modes import MessageRequestModeTable
from rockhopper.broker.kernel.state_channels import Channel, StateChannels
from rockhopper.broker.kernel.state_records import Entry, join
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files.record_journal import RecordJournal
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.store.journal_records import decode_records, encode_record

log = structlog.get_logger("broker.ha")

POPPED, POPPED_ALL = 9, 10
INTERVAL_MS = 25
_NO_SENSE = KeyError, ValueError, struct.error, msgspec.MsgspecError


class PopState(State):
    """The table of request modes, and the lanes. Belongs to the event loop."""

    kinds = (POPPED, POPPED_ALL)

    def __init__(self, layout: StoreLayout, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.request_modes = MessageRequestModeTable(
            layout.config / "messageRequestMode.json", now_ms=now_ms
        )
        self.tables = {self.request_modes: Channel.CONFIRMED}
        self.slave_tables = {"GET_ALL_MESSAGE_REQUEST_MODE": ("request modes", self.request_modes)}
        self.journal = RecordJournal(
            layout.own / "pop", layout.quarantine, what="popped messages", strict=True
        )
        self.lanes = Lanes(self.journal)
        self.compaction = Compaction(self.journal, self.lanes)

    def follow(self, store: MessageStore) -> None:
        """Read the journal. Raises OSError."""
        self.lanes.load(store.log.written_offset)

    async def leave(self) -> None:
        """Close the journal."""
        await self.compaction.close()
        self.journal.close()

    def replicate(self, channels: StateChannels) -> None:
        """Write every change of the lanes for the followers."""
        self.lanes.channel = channels.channel(POPPED, Channel.GATHERED, interval_ms=INTERVAL_MS)

    def snapshot(self) -> Iterator[Entry]:
        """Return all lanes."""
        yield POPPED_ALL, b""
        yield from join(POPPED, [strip_copy(lane_record(lane)) for lane in self.lanes])

    def apply(self, kind: int, payload: bytes, log_offset: int) -> None:
        """Apply changes of lanes. Raises OSError."""
        if kind == POPPED_ALL:
            self.journal.rotate()
            self.lanes.forget_all()
            self.journal.forget_older()
            return
        for note, content in decode_records(payload).records:
            self.journal.append(encode_record(note, content))
            try:
                self.lanes.apply(note, content)
            except _NO_SENSE as error:
                log.warning("a replicated pop entry is invalid", kind=note, reason=repr(error))
        self.lanes.settle(log_offset)
        self.compaction.consider()
