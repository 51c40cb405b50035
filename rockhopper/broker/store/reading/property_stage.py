"""The second stage of a filtered read: the properties of messages, read from their records.

Consume queues hold only the hash of a tag, so a property filter must read the commit log. It reads
only the bytes after the body.

A client's request decides what one step costs: the length of the expression, and of the properties
that it reads. So the limit is on time, not on messages. ``FilterBudget`` is the time that property
filters of all connections together may take, a token bucket: at most ``BUDGET_S``, refilled with
``SHARE`` of the elapsed time; each filtered read takes from it. If it is spent, the read stops for
now: the pull returns empty with the offset that it reached, and other work on the event loop gets a
turn. Reads that must wait take turns (server/loop/filter_turns.py).
"""

import struct
import time
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from typing import Protocol, TypeAlias

from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.log.selecting import NAMES_MAX, Test, values_in
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from rockhopper.protocol.store.record_head import (
    HEAD_SIZE_BYTES,
    HEAD_SIZE_BYTES_MAX,
    HOST_FLAGS_MASK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_BYTES_MIN,
    body_start,
    head_struct,
)

PropertyTest: TypeAlias = Callable[[Mapping[str, str]], bool]

_WHOLE_SIZE_BYTES_MAX = 4096
_TESTS_MAX = 1024
# For each expression; values that differ in each message never recur.
_VERDICTS_MAX = 4096
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HEAD = head_struct("magic", "sys_flag", "body_size_bytes")
_INT32 = struct.Struct(">i")
_UINT16 = struct.Struct(">H")
BUDGET_S = 0.008
SHARE = 0.4
# Waiting reads continue once it is filled this far, because each check has a cost.
REFILLED_S = BUDGET_S / 2


class FilterBudget:
    """The remaining time."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self._left_s = BUDGET_S
        self._at_s = clock()
        self._depth = 0
        self.is_awaited = False
        """Whether reads wait for the budget; others must not overtake them."""

    def has_room(self) -> bool:
        """Return whether a read may begin now without overtaking a waiting one."""
        return not self.is_awaited and self.compute_left_s() > 0

    def compute_left_s(self) -> float:
        """Return the time left for a new read; negative after one that took too long."""
        now_s = self.clock()
        if not self._depth:
            self._left_s = min(self._left_s + (now_s - self._at_s) * SHARE, BUDGET_S)
            self._at_s = now_s
        return self._left_s

    def wait_s(self) -> float:
        """Return how long waiting reads must wait; 0 if time is left."""
        left_s = self.compute_left_s()
        return (REFILLED_S - left_s) / SHARE if left_s <= 0 else 0.0

    def start_work(self) -> None:
        """Begin work that uses the budget; nested calls are allowed."""
        if not self._depth:
            self.compute_left_s()
        self._depth += 1

    def finish_work(self) -> None:
        """End the work, and subtract its time from the budget."""
        self._depth -= 1
        if not self._depth:
            now_s = self.clock()
            self._left_s -= now_s - self._at_s
            self._at_s = now_s

    @contextmanager
    def pays(self) -> Iterator[None]:
        """A context manager for ``start_work`` and ``finish_work``."""
        self.start_work()
        try:
            yield
        finally:
            self.finish_work()

    def is_spent(self) -> bool:
        """Return whether the current work should stop."""
        return self.clock() - self._at_s >= self._left_s


class MessageFilter(Protocol):
    """The filter of a read: ``protocol.subscription.Subscription``, or a stand-in."""

    @property
    def tag_hashes(self) -> Set[int]:
        """Hashes of tags whose messages match at once; empty if properties decide."""

    def matches_hash(self, tags_code: int) -> bool:
        """Return whether a message with *tags_code* in its consume queue entry may match."""

    @property
    def sql(self) -> SqlFilter | None:
        """The expression, if it alone decides."""

    @property
    def matches_properties(self) -> PropertyTest | None:
        """The test of a message's properties; None if its tag decides."""


class PropertyStage:
    """Tests the properties of records of one commit log, as long as the budget lasts."""

    def __init__(self, log: CommitLog, budget: FilterBudget) -> None:
        self._log = log
        self.budget = budget
        self._is_first = False
        self._tests: dict[SqlFilter, Test | None] = {}
        self.tested_count = 0
        """Messages whose properties were read, since the start."""

    def start_read(self) -> None:
        """Begin a read in its turn: it may read one message even if the budget is spent."""
        self.budget.start_work()
        self.look_at_one()

    def look_at_one(self) -> None:
        """Allow one more message, even if the budget is spent."""
        self._is_first = True

    def begin_between(self) -> None:
        """Begin a read out of turn: it gets only the rest of the budget, perhaps nothing."""
        self._is_first = self.budget.has_room()
        self.budget.start_work()

    def finish_read(self) -> None:
        """End the read."""
        self.budget.finish_work()

    def is_spent(self) -> bool:
        """Return whether the read should end before its next message."""
        if self._is_first:
            self._is_first = False
            return False
        return self.budget.is_spent()

    def test_of(self, sql: SqlFilter) -> Test | None:
        """Return the input of ``select_sound`` for *sql*; None if it cannot handle the expression.

        Verdicts are cached for all readers with the same expression.
        """
        if sql not in self._tests:
            if len(self._tests) >= _TESTS_MAX:
                self._tests.clear()
            self._tests[sql] = self._new_test(sql)
        return self._tests[sql]

    def _new_test(self, sql: SqlFilter) -> Test | None:
        names = sql.property_names
        # A property name that is not valid UTF-8 changes when it is decoded.
        if len(names) > NAMES_MAX or any(_REPLACEMENT in name for name in names):
            return None
        try:
            encoded = tuple(name.encode() for name in names)
        except UnicodeEncodeError:
            return None
        verdicts: dict[bytes, bool] = {}

        def judge(key: bytes) -> bool | None:
            if self.is_spent():
                return None
            if len(verdicts) >= _VERDICTS_MAX:
                verdicts.clear()
            verdict = verdicts[key] = sql.matches(values_in(key, names))
            return verdict

        return encoded, verdicts, judge

    def rejects(self, log_offset: int, size: int, test: PropertyTest) -> bool:
        """Return whether the record at *log_offset* is sound and does not match *test*."""
        self.tested_count += 1
        properties = self._properties(log_offset, size)
        return properties is not None and not test(properties)

    def _properties(self, log_offset: int, size: int) -> dict[str, str] | None:
        """Return a record's properties; None if it is deleted, or its sizes do not add up."""
        end = log_offset + size
        is_long = size > _WHOLE_SIZE_BYTES_MAX
        head = self._log.read(log_offset, log_offset + HEAD_SIZE_BYTES_MAX if is_long else end)
        if len(head) < RECORD_SIZE_BYTES_MIN:
            return None
        magic, sys_flag, body_size = _HEAD.unpack_from(head)
        body_at = HEAD_SIZE_BYTES
        if sys_flag & HOST_FLAGS_MASK:
            body_at = body_start(sys_flag)
            if len(head) < body_at:
                return None
            (body_size,) = _INT32.unpack_from(head, body_at - 4)
        topic_at = body_at + body_size
        if body_size < 0 or topic_at + 3 > size:
            return None
        tail = self._log.read(log_offset + topic_at, end) if is_long else head[topic_at:]
        return _properties_behind_topic(tail, magic)


def _properties_behind_topic(tail: bytes, magic: int) -> dict[str, str] | None:
    if magic == MAGIC_V1:
        size_at = 1 + tail[0] if tail else 0
    elif magic == MAGIC_V2 and len(tail) >= 2:
        size_at = 2 + _UINT16.unpack_from(tail)[0]
    else:
        return None
    if not 0 < size_at <= len(tail) - 2:
        return None
    (size,) = _UINT16.unpack_from(tail, size_at)
    if size_at + 2 + size != len(tail):
        return None
    return decode_properties(tail[size_at + 2 :])
