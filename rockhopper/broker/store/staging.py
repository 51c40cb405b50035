"""Staging: the messages of one pass, from their fields to records in the commit log.

A pass is the messages that are written together. Each gets its place in log and queue at once, the
records are collected, and one write at the end adds all of them to the log, or none. If the broker
is killed during that write, the first records may stay; none of them was acknowledged.

``MultiDispatch`` puts one record into several queues, those that its properties name. The message
has one record, and a unit of 20 bytes in each light queue that it names. Recovery, the scrub and
repair read the two properties that are written here (protocol/store/light_queues.py), so one place
writes them. It is off until a feature enables it. A client's own value for the message's offsets is
always dropped, because recovery trusts that property.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.log.encoding import (
    PROPERTIES_SIZE_BYTES_MAX,
    Batch,
    encode_record,
    index_keys,
)
from rockhopper.broker.store.log.fast_encoding import encode_batch, encode_plain, encode_run
from rockhopper.broker.store.put import Copy
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run, StagedMessages
from rockhopper.protocol.addresses import host_bytes
from rockhopper.protocol.names import TRANSACTION_CHECK_MAX_TIME_TOPIC, TRANSACTION_HALF_TOPIC
from rockhopper.protocol.properties import (
    PROPERTY_INNER_MULTI_DISPATCH,
    PROPERTY_INNER_MULTI_QUEUE_OFFSET,
    PROPERTY_KEYS,
    PROPERTY_UNIQUE_KEY,
    fit_properties,
    join_properties,
)
from rockhopper.protocol.store.expected import DelayOf, compute_tags_code
from rockhopper.protocol.store.light_queues import (
    LIGHT_QUEUE_ID,
    SEPARATOR,
    dispatches,
    is_light,
    light_queue_error,
)
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT, CONSUME_QUEUE_UNIT_SIZE_BYTES

_MULTI_DISPATCH = frozenset({PROPERTY_INNER_MULTI_DISPATCH, PROPERTY_INNER_MULTI_QUEUE_OFFSET})
# Messages of transactions that are open, or were given up.
_UNDECIDED = frozenset({TRANSACTION_HALF_TOPIC, TRANSACTION_CHECK_MAX_TIME_TOPIC})


class MultiDispatch:
    """The multi-dispatch of one store."""

    def __init__(self, existing: Iterable[str]) -> None:
        """*existing* are the topics that have queues."""
        self.is_enabled = False
        self._known = set(filter(is_light, existing))

    def enable(self) -> None:
        """Put messages into the queues that they name from now on."""
        self.is_enabled = True

    def begin_anew(self, existing: Iterable[str]) -> None:
        """Find out again which queues exist, because others have written to them."""
        self._known = set(filter(is_light, existing))

    @property
    def known_count(self) -> int:
        """The number of light queues."""
        return len(self._known)

    def unknown_among(self, names: Iterable[str]) -> set[str]:
        """Return those of *names* that no message is in yet."""
        return {name for name in names if name not in self._known}

    def forget(self, name: str) -> None:
        """Forget a deleted light queue."""
        self._known.discard(name)

    def place(
        self,
        own: QueueTail,
        properties: dict[str, str],
        tail: Callable[[str, int], QueueTail],
    ) -> tuple[dict[str, str], list[QueueTail]]:
        """Return the properties to store for a message of the queue *own*, and its light queues.

        *tail* returns the tail of a queue.
        """
        properties = dict(properties)
        properties.pop(PROPERTY_INNER_MULTI_QUEUE_OFFSET, None)
        text = properties.get(PROPERTY_INNER_MULTI_DISPATCH, "")
        names = text.split(SEPARATOR)
        if (
            not self.is_enabled
            or own.topic in _UNDECIDED
            or not dispatches(own.topic)
            or any(light_queue_error(name) is not None for name in names)
        ):
            return properties, []
        # By name: a repeated name is one queue.
        tails = {name: tail(name, LIGHT_QUEUE_ID) for name in names}
        self._known.update(tails)
        offsets = [str(tails[name].next_offset) for name in names]
        properties[PROPERTY_INNER_MULTI_QUEUE_OFFSET] = SEPARATOR.join(offsets)
        return properties, [found for found in tails.values() if found is not own]


class Staging:
    """Collects the messages of one pass and writes them."""

    def __init__(
        self,
        commit_log: CommitLog,
        new_tail: Callable[[str, int], QueueTail],
        delay_ms: DelayOf,
        multi_dispatch: MultiDispatch,
        now_ms: Callable[[], int],
    ) -> None:
        """*new_tail* returns the tail of a queue that got no message since the start."""
        self._log = commit_log
        self.store_host = commit_log.store_host
        """The host that every record states as its store host."""
        self._new_tail = new_tail
        self._delay_ms = delay_ms
        self.multi_dispatch = multi_dispatch
        self._now_ms = now_ms
        self.tails: dict[tuple[str, int], QueueTail] = {}
        # By topic, so that forgetting one needs no search through all.
        self._queue_ids: dict[str, list[int]] = {}
        self._staged: StagedMessages | None = None
        self._run: Run | None = None

    def tail(self, topic: str, queue_id: int) -> QueueTail:
        """Return the tail of a queue; the caller has validated topic and queue."""
        key = (topic, queue_id)
        tail = self.tails.get(key)
        if tail is None:
            tail = self.tails[key] = self._new_tail(topic, queue_id)
            self._queue_ids.setdefault(topic, []).append(queue_id)
        return tail

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that have a tail."""
        return list(self._queue_ids.get(topic, ()))

    def begin_anew(self) -> None:
        """Read the next offsets from the queues again, because others have written to them."""
        self.tails.clear()
        self._queue_ids.clear()

    def forget_topic(self, topic: str) -> None:
        """Forget a topic, so that a new one with its name starts afresh."""
        for queue_id in self._queue_ids.pop(topic, ()):
            self.tails.pop((topic, queue_id)).is_deleted = True
        self.multi_dispatch.forget(topic)

    def forget_unused(self, tail: QueueTail) -> None:
        """Forget a light queue that never had a message, unless a reader waits for one.

        Clients may name any light queue, and no topic limits their number.
        """
        has_messages = tail.next_offset > 0 or tail.consume_queue is not None
        if not is_light(tail.topic) or has_messages or tail.waiters:
            return
        if self.tails.get((tail.topic, tail.queue_id)) is tail:
            self.forget_topic(tail.topic)

    def read_clock(self) -> int:
        """Read the clock for this pass and return it.

        Store times never go backwards. The messages of a pass have the time of the first one with
        keys: the index has one time for all of them. Records without keys do not keep the time,
        since those of a replica set's state may be staged long before they are written.
        """
        now_ms = self._now_ms()
        commit_log, staged = self._log, self._staged
        if now_ms > commit_log.store_time_ms and (staged is None or not staged.packed_keys):
            commit_log.store_time_ms = now_ms
        return now_ms

    def stage_plain(
        self,
        tail: QueueTail,
        body: bytes,
        properties: str,
        suffix: bytes,
        flag: int,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
        reconsume_times: int,
    ) -> tuple[int, str, bool, int] | None:
        """Add a producer's message to the pass, with *suffix* after its properties.

        Returns its commit log offset, its unique key, whether its producer waits for the disk, and
        the size of its record; None, with nothing done, if the message is not plain (encoding.py).

        Raises:
            RecordTooLargeError: no file can hold it; it is not in the pass.
            StoreError: it is not in the pass, which may have failed: see ``write``.
        """
        commit_log = self._log
        while True:
            log_offset = commit_log.staged_offset
            encoded = encode_plain(
                tail.constants,
                log_offset,
                tail.next_offset,
                commit_log.store_time_ms,
                commit_log.store_host,
                body,
                properties,
                suffix,
                flag,
                sys_flag,
                born_time_ms,
                born_host,
                reconsume_times,
            )
            if encoded is None:
                return None
            record, unit, packed_keys, unique_key, waits = encoded
            if commit_log.stage_encoded(record):
                break
            self._run = None
        run = self._run
        if run is None or run.tail is not tail:
            run = self._open_run(tail, log_offset)
        run.units.append(unit)
        run.count += 1
        self._extend(run, packed_keys)
        tail.next_offset += 1
        return log_offset, unique_key, waits, len(record)

    def place(self) -> tuple[int, int, int]:
        """Return offset, limit and store time in ms of the next record of the pass.

        Records that end at or before the limit need no new file.
        """
        commit_log = self._log
        return commit_log.staged_offset, commit_log.room_end, commit_log.store_time_ms

    def stage_batch(
        self,
        tail: QueueTail,
        body: bytes,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
    ) -> tuple[int, bytes] | None:
        """Add the messages of a batch body to the pass, each as a record of its own.

        Returns the first one's commit log offset and the packed consume queue units of all; None,
        with nothing done, if the batch is not plain (encoding.py).

        Raises:
            RecordTooLargeError: no file can hold it; nothing of it is in the pass.
            StoreError: nothing of it is in the pass, which may have failed: see ``write``.
        """
        return self._stage_all(encode_batch, tail, body, sys_flag, born_time_ms, born_host)

    def stage_run(
        self, tail: QueueTail, body: bytes, suffix: bytes, born_time_ms: int
    ) -> tuple[int, bytes] | None:
        """``stage_batch`` for messages that are plain as single ones, and were born on this host.

        *suffix* is appended to the properties of each.
        """
        return self._stage_all(encode_run, tail, body, suffix, born_time_ms)

    def _stage_all(
        self, encode: Callable[..., Batch | None], tail: QueueTail, *given: Any
    ) -> tuple[int, bytes] | None:
        commit_log = self._log
        while True:
            log_offset = commit_log.staged_offset
            encoded = encode(
                tail.constants,
                log_offset,
                tail.next_offset,
                commit_log.store_time_ms,
                commit_log.store_host,
                *given,
            )
            if encoded is None:
                return None
            records, units, packed_keys = encoded
            if commit_log.stage_encoded(records):
                break
            self._run = None
        run = self._run
        if run is None or run.tail is not tail:
            run = self._open_run(tail, log_offset)
        run.units.append(units)
        count = len(units) // CONSUME_QUEUE_UNIT_SIZE_BYTES
        run.count += count
        self._extend(run, packed_keys)
        tail.next_offset += count
        return log_offset, units

    def stage(
        self,
        tail: QueueTail,
        body: bytes,
        properties: dict[str, str],
        flag: int,
        sys_flag: int,
        born_time_ms: int,
        born_host: bytes,
        reconsume_times: int = 0,
        prepared_offset: int = 0,
        batch_count: int = 0,
    ) -> int:
        """Add any message to the pass and return its commit log offset.

        Its queue offset is the tail's next one. *batch_count* is the number of messages in a record
        that holds a batch, for topics of type BatchCQ.

        Raises:
            RecordTooLargeError: no file can hold it; it is not in the pass.
            StoreError: it is not in the pass, which may have failed: see ``write``.
        """
        light_tails: Sequence[QueueTail] = ()
        if not _MULTI_DISPATCH.isdisjoint(properties):
            properties, light_tails = self.multi_dispatch.place(tail, properties, self.tail)
        try:
            head = flag, sys_flag, born_time_ms, born_host, reconsume_times, prepared_offset
            log_offset = self._stage_own(tail, body, properties, batch_count, *head)
        except StoreError:
            for unused in (tail, *light_tails):
                self.forget_unused(unused)
            raise
        if light_tails:
            assert self._staged is not None
            unit = self._staged.runs[-1].units[-1]
            for light in light_tails:
                self._stage_light(light, unit, log_offset)
        return log_offset

    def stage_again(self, copy: Copy) -> int:
        """Add a copy of a stored message to the pass; return and raise as ``stage``.

        Optional properties that there is no room for are left out.
        """
        message = copy.message
        return self.stage(
            self.tail(copy.topic, copy.queue_id),
            message.body,
            fit_properties(copy.properties),
            message.flag,
            message.sys_flag if copy.sys_flag is None else copy.sys_flag,
            message.born_time_ms,
            host_bytes(message.born_host, message.born_port),
            message.reconsume_times if copy.reconsume_times is None else copy.reconsume_times,
            copy.prepared_offset,
        )

    def _stage_own(
        self,
        tail: QueueTail,
        body: bytes,
        properties: dict[str, str],
        batch_count: int,
        *head: Any,
    ) -> int:
        """Put a message into its own queue, as ``stage``; *head* is the rest of its record."""
        commit_log = self._log
        text = join_properties(properties).encode("utf-8", "replace")
        if len(text) > PROPERTIES_SIZE_BYTES_MAX:
            raise RecordTooLargeError(
                f"the properties take {len(text)} bytes; at most {PROPERTIES_SIZE_BYTES_MAX} are "
                "allowed"
            )
        while True:
            log_offset = commit_log.staged_offset
            try:
                record = encode_record(
                    tail.constants,
                    log_offset,
                    tail.next_offset,
                    commit_log.store_time_ms,
                    commit_log.store_host,
                    body,
                    text,
                    *head,
                )
            except struct.error as error:
                raise RecordTooLargeError(
                    f"a header field does not fit a record: {error}"
                ) from None
            if commit_log.stage_encoded(record):
                break
            self._run = None
        code = compute_tags_code(tail.topic, properties, commit_log.store_time_ms, self._delay_ms)
        run = self._open_run(tail, log_offset)
        run.units.append(CONSUME_QUEUE_UNIT.pack(log_offset, len(record), code))
        run.count = run.batch_count = batch_count or 1
        unique_key, keys = properties.get(PROPERTY_UNIQUE_KEY), properties.get(PROPERTY_KEYS)
        self._extend(run, index_keys(tail.constants, log_offset, unique_key, keys))
        tail.next_offset += run.count
        if tail.is_batch:
            self._run = None
        return log_offset

    def _stage_light(self, tail: QueueTail, unit: bytes, log_offset: int) -> None:
        """Add the record at *log_offset*, the last of the pass, to a light queue as well."""
        run = self._open_run(tail, log_offset)
        run.units.append(unit)
        run.count = run.batch_count = 1
        self._extend(run, b"")
        tail.next_offset += 1
        # Later messages must not join a run before this one.
        self._run = None

    def _open_run(self, tail: QueueTail, log_offset: int) -> Run:
        run = self._run = Run.empty_at(tail, log_offset)
        self._open(log_offset).runs.append(run)
        return run

    def _open(self, log_offset: int) -> StagedMessages:
        staged = self._staged
        if staged is None:
            staged = self._staged = StagedMessages(log_offset)
        return staged

    def _extend(self, run: Run, packed_keys: bytes) -> None:
        """Extend *run*, and the staged range, to the end of the pass."""
        staged = self._staged
        assert staged is not None
        staged.packed_keys += packed_keys
        staged.end = run.end = self._log.staged_offset

    def write(self) -> StagedMessages | None:
        """Write the pass and return what it added to the log, for dispatch.

        Raises:
            StoreError: it is not in the log, except ``take_written``; its queue offsets are free.
        """
        try:
            self._log.write()
        except StoreError:
            self.give_back()
            raise
        return self.take_written()

    def take_written(self) -> StagedMessages | None:
        """Return the part of a failed pass that was written because a file was full."""
        staged, self._staged, self._run = self._staged, None, None
        return staged if staged is not None and staged.runs else None

    def give_back(self) -> None:
        """Free the queue offsets of unwritten messages."""
        if self._staged is None:
            return
        for run in reversed(self._staged.split_at(self._log.written_offset).runs):
            run.tail.next_offset = run.first_offset
            self.forget_unused(run.tail)
