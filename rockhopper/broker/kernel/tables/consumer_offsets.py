"""ConsumerOffsetTable: where each group goes on reading, kept in ``config/consumerOffset.json``.

RocketMQ: ConsumerOffsetManager. ``topic@group`` -> {queue id: offset of the next message}. The
file is written every flushConsumerOffsetInterval; what is committed in between is noted in a
journal (offset_journal.py), so that kill -9 repeats next to nothing.

With enableLmq the file is ``lmqConsumerOffset.json``, as there, and groups that are named like
light queues stand in its ``lmqOffsetTable``: ``topic@group`` -> offset. The newer of the two files
is read, so that the setting may be changed.

A group's own commits only go forward: after a rebalance the former owner's last one may come late.
Going back takes an operator's reset. That offset is kept twice: the consumer learns of it at its
next pull, and its own commits do not count until then.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import structlog

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.kernel.tables.offset_journal import Change, OffsetJournal, fingerprint
from rockhopper.broker.server.loop.clock import wall_clock_ms
from rockhopper.protocol.store.light_queues import LIGHT_QUEUE_ID, is_light

log = structlog.get_logger("broker.offsets")

SEPARATOR = "@"
LIGHT_FILE = "lmqConsumerOffset.json"
# How long a client may take to commit the smaller offset that it was sent.
PUSHED_RESET_MS = 60_000


class ConsumerOffsetTable(JsonTable):
    """Committed offsets of all groups."""

    without = "what groups committed is forgotten, and they begin like new ones"

    def __init__(
        self,
        path: Path,
        *,
        version_step: int = 500,
        now_ms: Callable[[], int] = wall_clock_ms,
        journal: OffsetJournal | None = None,
        with_light_queues: bool = False,
    ) -> None:
        """*path* is that of consumerOffset.json."""
        light_path = path.with_name(LIGHT_FILE)
        self._with_light_queues = with_light_queues
        self._other_path = path if with_light_queues else light_path
        super().__init__(light_path if with_light_queues else path, now_ms=now_ms)
        self.journal = journal
        self._file: bytes | None = None
        self._file_sha = fingerprint(None)
        self._begun = 0
        # Resets that were pushed to clients: the offset and until when it is waited for.
        self._pushed: dict[tuple[str, int], tuple[int, int]] = {}
        self._offsets: dict[str, dict[int, int]] = {}
        # So that what one group has is found without a walk through what all have.
        self._topics_of: dict[str, set[str]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._version_step = version_step
        self._commits = 0
        self.is_known: Callable[[str, int], bool] = lambda topic, queue_id: True
        """Whether a light queue has messages, or had."""

    def to_json(self) -> JsonObject:
        """The content of consumerOffset.json."""
        offsets = {key: dict(queues) for key, queues in self._offsets.copy().items()}
        topics_of: dict[str, list[str]] = {}
        for key in offsets:
            if (parts := _topic_and_group(key)) is not None:
                topics_of.setdefault(parts[1], []).append(parts[0])
        document: JsonObject = {"dataVersion": self.version.to_json(), "groupTopicMap": topics_of}
        if self._with_light_queues:
            light = {key: offsets.pop(key) for key in list(offsets) if _is_light_groups(key)}
            document["lmqOffsetTable"] = {
                key: queues[LIGHT_QUEUE_ID]
                for key, queues in light.items()
                if LIGHT_QUEUE_ID in queues
            }
        return {**document, "offsetTable": offsets}

    def from_json(self, document: JsonObject) -> None:
        """Take the offsets of a consumerOffset.json, its queue ids bare or quoted."""
        table = document.get("offsetTable")
        if not isinstance(table, dict):
            raise ValueError("it has no offsetTable")
        offsets: dict[str, dict[int, int]] = {}
        for key, queues in table.items():
            if not isinstance(queues, dict):
                raise ValueError(f"the offsets of {key} are no JSON object")
            offsets[str(key)] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
        light = document.get("lmqOffsetTable")
        if light is not None and not isinstance(light, dict):
            raise ValueError("its lmqOffsetTable is no JSON object")
        for key, offset in (light or {}).items():
            offsets[str(key)] = {LIGHT_QUEUE_ID: int(offset)}
        self._offsets = {}
        self._topics_of = {}
        for key, queues in offsets.items():
            self._queues_of(key).update(queues)

    def load(self) -> bool:
        """Read the file, then what was committed after it was written.

        Raises:
            CorruptFileError: the file and its backup cannot be read.
            OSError: a file cannot be opened.
        """
        found = self._load_newer()
        self._file_sha = fingerprint(self._file)
        changes = self.journal.read(self._file) if self.journal is not None else []
        self._file = None
        for key, queue_id, offset in changes:
            if queue_id < 0:
                self._forget(key)
            else:
                self._queues_of(key)[queue_id] = offset
        if changes:
            log.info("commits since the last save restored from the journal", commits=len(changes))
            self.mark_changed()
        return found or bool(changes)

    def _load_newer(self) -> bool:
        own, other = self.path, self._other_path
        if not other.exists() or (
            own.exists() and own.stat().st_mtime_ns >= other.stat().st_mtime_ns
        ):
            return super().load()
        self.path = other
        try:
            found = super().load()
        finally:
            self.path = own
        log.info("offsets read from the file of the other enableLmq value", file=str(other))
        self.mark_changed()
        return found

    def _refuses_altered(self, saved: bytes) -> bool:
        # After a crash it and the journal tell of every commit, which no edit by hand could.
        return self.journal is not None and self.journal.knows(saved)

    def _take(self, data: bytes) -> None:
        super()._take(data)
        self._file = data

    def start_saving(self) -> None:
        """From now on write changes, and note each commit. Raises OSError."""
        if self.journal is not None:
            self._begun = self.journal.begin(self._file_sha)
        super().start_saving()

    def _begin_write(self) -> None:
        if self.journal is not None and self.journal.is_open:
            self._begun = self.journal.begin(self._file_sha)

    def _about_to_write(self, data: bytes) -> None:
        self._file_sha = fingerprint(data)
        if self.journal is not None and self.journal.is_open:
            self.journal.expect(self._file_sha)

    def _written(self) -> None:
        if self.journal is not None and self.journal.is_open:
            self.journal.drop_before(self._begun)

    def close_journal(self) -> None:
        """Note no more commits; a file that holds everything needs no journal."""
        if self.journal is not None and self.journal.is_open:
            self.journal.close()
            if self.is_saved:
                self.journal.drop_before(self._begun + 1)

    def take_changes(self, changes: Iterable[Change]) -> None:
        """Have what a journal of another replica notes, in its order."""
        for key, queue_id, offset in changes:
            if queue_id < 0:
                self._delete([key])
            else:
                self._queues_of(key)[queue_id] = offset
                self._moved(key, queue_id, offset)

    def _moved(self, key: str, queue_id: int, offset: int) -> None:
        if self.journal is not None and self.journal.is_open:
            self.journal.note(key, queue_id, offset)
        self._count_commit()

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset to go on from; None when the group has none in this queue."""
        queues = self._offsets.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def commit(
        self, topic: str, group: str, queue_id: int, offset: int, *, backward: bool = False
    ) -> bool:
        """Move a group's offset; False when a reset is pending, which commits may not undo.

        Negative offsets (some clients send -1 for 0) change nothing, nor do those in light queues
        that do not exist: any name is one. Nor does a smaller offset unless *backward*, or a
        client does as a reset told it that was pushed to it.
        """
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        queues = self._offsets.get(key)
        if queues is None:
            if offset < 0 or (is_light(topic) and not self.is_known(topic, queue_id)):
                return True
            queues = self._queues_of(key)
        known = queues.get(queue_id, -1)
        if offset == known or offset < 0:
            return True
        if offset < known and not backward and not self._is_pushed(key, queue_id, offset):
            return True
        queues[queue_id] = offset
        self._moved(key, queue_id, offset)
        return True

    def expect_reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Let a client that is sent a smaller offset commit it, once, within a minute."""
        until_ms = self._now_ms() + PUSHED_RESET_MS
        self._pushed[f"{topic}@{group}", queue_id] = offset, until_ms

    def _is_pushed(self, key: str, queue_id: int, offset: int) -> bool:
        least, until_ms = self._pushed.get((key, queue_id), (0, 0))
        if self._now_ms() > until_ms or offset < least:
            return False
        del self._pushed[key, queue_id]
        return True

    def _count_commit(self) -> None:
        self._changes += 1
        self._commits += 1
        if self._commits % self._version_step == 0:
            self.version.advance(self._now_ms())

    def reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set an offset by an operator's wish; the next pull is told with ``take_reset``."""
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self._queues_of(key)[queue_id] = offset
        self._moved(key, queue_id, offset)

    def pending_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The offset that an operator set and no pull has learnt of yet."""
        if not self._resets:
            return None
        return self._resets.get(f"{topic}@{group}", {}).get(queue_id)

    @property
    def has_resets(self) -> bool:
        """Whether any pull may have to learn of a reset."""
        return bool(self._resets)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """The same, for the pull that learns of it: from then on commits count again.

        Its client commits the new offset in the end, but some (Java before 5.2) first commit what
        they still remember.
        """
        if not self._resets:
            return None
        key = f"{topic}@{group}"
        resets = self._resets.get(key)
        if resets is None:
            return None
        offset = resets.pop(queue_id, None)
        if not resets:
            del self._resets[key]
        if offset is not None:
            self.expect_reset(topic, group, queue_id, offset)
        return offset

    def queues(self, topic: str, group: str) -> dict[int, int]:
        """Queue id -> offset of one group and topic; a copy."""
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """The topics in which *group* has offsets."""
        return sorted(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """The groups that have offsets in *topic*."""
        return sorted(group for group, topics in self._topics_of.items() if topic in topics)

    def entries(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """(topic, group, {queue id: offset}); keys that are not ``topic@group`` are left out."""
        for key in list(self._offsets):
            queues, parts = self._offsets.get(key), _topic_and_group(key)
            if parts is not None and queues is not None:
                yield *parts, queues

    def _queues_of(self, key: str) -> dict[int, int]:
        """The offsets under *key*; empty ones where there are none yet."""
        queues = self._offsets.get(key)
        if queues is None:
            queues = self._offsets[key] = {}
            if (parts := _topic_and_group(key)) is not None:
                self._topics_of.setdefault(parts[1], set()).add(parts[0])
        return queues

    def _forget(self, key: str) -> None:
        if self._offsets.pop(key, None) is None or (parts := _topic_and_group(key)) is None:
            return
        topic, group = parts
        topics = self._topics_of[group]
        topics.discard(topic)
        if not topics:
            del self._topics_of[group]

    def delete_topic(self, topic: str) -> int:
        """Forget every group's offsets in *topic*; return of how many groups."""
        return self._delete([f"{topic}@{group}" for group in self.groups_of(topic)])

    def delete_group(self, group: str) -> int:
        """Forget *group*'s offsets; return in how many topics."""
        return self._delete([f"{topic}@{group}" for topic in self.topics_of(group)])

    def delete_all(self) -> None:
        """Forget everything."""
        self._delete(list(self._offsets))
        self._resets.clear()
        self._pushed.clear()

    def _delete(self, keys: list[str]) -> int:
        for key in keys:
            self._forget(key)
            self._resets.pop(key, None)
        if keys and self.journal is not None:
            self.journal.drop(keys)
        if keys:
            self._count_commit()
        return len(keys)

    def copy_group(self, source: str, target: str, topic: str) -> None:
        """Give *target* the offsets that *source* has in *topic*, and no others.

        A source without any changes nothing.
        """
        key = f"{topic}@{target}"
        offsets = self.queues(topic, source)
        if not self.queues(topic, target).keys() <= offsets.keys() and offsets:
            self._delete([key])
        for queue_id, offset in offsets.items():
            self._queues_of(key)[queue_id] = offset
            self._moved(key, queue_id, offset)

    def clamp(self, max_offset_of: Callable[[str, int], int]) -> int:
        """Take back offsets beyond the end of their queue; return how many there were.

        After a power cut the log may have lost messages that consumers had already committed: left
        alone, the group would skip as many messages that come later.
        """
        clamped = 0
        for topic, group, queues in self.entries():
            for queue_id, offset in queues.items():
                max_offset = max_offset_of(topic, queue_id)
                if offset > max_offset:
                    queues[queue_id] = max_offset
                    clamped += 1
                    log.warning(
                        "committed offset was beyond the end of its queue and is moved back",
                        topic=topic,
                        group=group,
                        queue=queue_id,
                        committed=offset,
                        now=max_offset,
                    )
        if clamped:
            self._count_commit()
        return clamped


def _topic_and_group(key: str) -> tuple[str, str] | None:
    """What ``topic@group`` names; None for keys of another form."""
    topic, separator, group = key.partition(SEPARATOR)
    return (topic, group) if separator and SEPARATOR not in group else None


def _is_light_groups(key: str) -> bool:
    """Whether ``topic@group`` is of a group that is named like a light queue."""
    return is_light(key.partition(SEPARATOR)[2])
