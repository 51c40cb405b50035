"""Copies a master's tables into ours."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from rockhopper.broker.kernel.persistence import Tables
from rockhopper.broker.kernel.scheduled.timers.java_files import (
    TIMER_CHECK_SIZE_BYTES,
    save_timer_check,
)
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.name_server.followed_master import FollowError, MasterTables
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol import fastjson
from rockhopper.protocol.errors import ProtocolError

log = structlog.get_logger("broker.following")

_TIMER_FIELDS_SIZE_BYTES = 56


class TableCopies:
    """The tables of a store that follows."""

    def __init__(self, tables: Tables, timer_check: Path) -> None:
        """*timer_check* is the file in which RocketMQ stores the progress of its timers."""
        self._tables = tables
        self._timer_check = timer_check
        self._taken: dict[str, bytes | None] = {}
        self.store: MessageStore | None = None
        """The open store, which loses the queues of topics that the master has deleted."""

    def take_topics(self, answers: MasterTables) -> None:
        """Copy only the topics, before the store is open. Raises FollowError."""
        self._take("topics", answers.topics, self._take_topics)

    def copy(self, answers: MasterTables) -> None:
        """Copy the tables that have changed since the last time, and mark them to be saved soon.

        Raises:
            FollowError: a table cannot be read; earlier ones have been copied.
        """
        self.take_topics(answers)
        self._take("groups", answers.groups, self._take_groups)
        offsets, delays = self._tables.offsets, self._tables.delays.table
        self._take("consumer offsets", answers.consumer_offsets, offsets.take_copy)
        self._take("delay offsets", answers.delay_offsets, delays.take_copy)
        self._take("timer checkpoint", answers.timer_check, self._take_timer_check)

    async def copy_of_features(self, table_of: Callable[[str], Awaitable[bytes | None]]) -> None:
        """Copy the tables of features, as ``copy`` does.

        *table_of* asks the master, by the name of a request code. Raises FollowError.
        """
        for state in self._tables.states:
            for code, (name, table) in state.slave_tables.items():
                self._take(name, await table_of(code), table.take_copy)

    def _take(self, what: str, answer: bytes | None, take: Callable[[bytes], None]) -> None:
        if not answer or answer == self._taken.get(what):
            return
        try:
            take(answer)
        except (ProtocolError, ValueError, AttributeError, TypeError) as error:
            raise FollowError(f"the master's {what} cannot be read: {error}") from None
        self._taken[what] = answer

    def _take_topics(self, answer: bytes) -> None:
        document = fastjson.loads(answer)
        found = document["topicConfigTable"] if isinstance(document, dict) else None
        if not isinstance(found, dict):
            raise ValueError("it has no topicConfigTable")
        topics = self._tables.topics
        theirs = {name: TopicConfig.from_json(name, value) for name, value in found.items()}
        statics = document.get("topicQueueMappingDetailMap") or {}
        if topics.mapping_table is not None:
            for value in statics.values():
                topics.mapping_table.put_json(value)
        for name, topic in theirs.items():
            if name not in topics.configs or not topics.is_system(name):
                topics.put(topic)
        gone = [
            name for name in topics.configs if name not in theirs and not topics.is_system(name)
        ]
        for name in gone:
            topics.delete(name)
        if gone:
            log.info("topics that the master deleted are deleted here", topics=gone)
            if self.store is not None:
                self.store.visibility.delete_topics(gone).remove()

    def _take_groups(self, answer: bytes) -> None:
        self._tables.groups.take_copy(answer)
        self._tables.groups.seed_system_groups()

    def _take_timer_check(self, answer: bytes) -> None:
        if len(answer) < _TIMER_FIELDS_SIZE_BYTES:
            raise ValueError(f"{len(answer)} bytes are too few")
        fields = answer[:_TIMER_FIELDS_SIZE_BYTES]
        save_timer_check(self._timer_check, fields.ljust(TIMER_CHECK_SIZE_BYTES, b"\0"))
