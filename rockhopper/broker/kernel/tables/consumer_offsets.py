"""ConsumerOffsetTable: the committed offset of each group, in ``config/consumerOffset.json``.

RocketMQ: ConsumerOffsetManager. ``topic@group`` -> {queue id: offset of the next message}. The file
is written every flushConsumerOffsetInterval. A journal contains the commits in between
(offset_journal.py), so that kill -9 repeats next to nothing.

With enableLmq the file is ``lmqConsumerOffset.json``, as in RocketMQ, and groups with names of
light queues are in its ``lmqOffsetTable``: ``topic@group`` -> offset. The newer of the two files is
read, so that the setting can be changed.

A group's own commits only move forward, because after a rebalance the former owner's last commit
may arrive late. Only an operator's reset moves back. A reset is stored twice: the consumer receives
it with its next pull, and its own commits are ignored until then.

    a group has committed 100; an operator resets it to 40
    a late commit of 110 arrives      ignored: the reset is pending
    the next pull                     is answered with offset 40; from now on commits count
    a commit of 45                    accepted; a crash and a restart continue at 45
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
# How long a client has to commit the smaller offset that it received.
PUSHED_RESET_MS = 60_000


class ConsumerOffsetTable(JsonTable):
    """The committed offsets of all groups."""

    without = "committed offsets are lost, and groups start like new ones"

    def __init__(
        self,
        path: Path,
        *,
        version_step: int = 500,
        now_ms: Callable[[], int] = wall_clock_ms,
        journal: OffsetJournal | None = None,
        with_light_queues: bool = False,
    ) -> None:
        """*path* is the path of consumerOffset.json."""
        light_path = path.with_name(LIGHT_FILE)
        self._with_light_queues = with_light_queues
        self._other_path = path if with_light_queues else light_path
        super().__init__(light_path if with_light_queues else path, now_ms=now_ms)
        self.journal = journal
        self._file: bytes | None = None
        self._file_sha = fingerprint(None)
        self._begun = 0
        # Resets that were pushed to clients: the offset, and until when its commit is expected.
        self._pushed: dict[tuple[str, int], tuple[int, int]] = {}
        self._offsets: dict[str, dict[int, int]] = {}
        # Finds the topics of a group without a scan of all offsets.
        self._topics_of: dict[str, set[str]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._version_step = version_step
        self._commits = 0
        self.ignored: list[Callable[[str, int], bool]] = []
        """Called with topic and queue of the first commit of a group in a topic: whether any of
        them returns True, and the commit is ignored."""

    def to_json(self) -> JsonObject:
        """Return the content of consumerOffset.json."""
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
        """Load the offsets of a consumerOffset.json, with bare or quoted queue ids."""
        table = document.get("offsetTable")
        if not isinstance(table, dict):
            raise ValueError("it has no offsetTable")
        offsets: dict[str, dict[int, int]] = {}
        for key, queues in table.items():
            if not isinstance(queues, dict):
                raise ValueError(f"the offsets of {key} are not a JSON object")
            offsets[str(key)] = {int(queue_id): int(offset) for queue_id, offset in queues.items()}
        light = document.get("lmqOffsetTable")
        if light is not None and not isinstance(light, dict):
            raise ValueError("its lmqOffsetTable is not a JSON object")
        for key, offset in (light or {}).items():
            offsets[str(key)] = {LIGHT_QUEUE_ID: int(offset)}
        self._offsets = {}
        self._topics_of = {}
        for key, queues in offsets.items():
            self._queues_of(key).update(queues)

    def load(self) -> bool:
        """Read the file, then the commits after it was written.

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
        # After a crash, this file and the journal contain every commit; a manual edit cannot.
        return self.journal is not None and self.journal.knows(saved)

    def _take(self, data: bytes) -> None:
        super()._take(data)
        self._file = data

    def start_saving(self) -> None:
        """Write changes from now on, and record each commit. Raises OSError."""
        if self.journal is not None:
            self._begun = self.journal.start_file(self._file_sha)
        super().start_saving()

    def _begin_write(self) -> None:
        if self.journal is not None and self.journal.is_open:
            self._begun = self.journal.start_file(self._file_sha)

    def _prepare_write(self, data: bytes) -> None:
        self._file_sha = fingerprint(data)
        if self.journal is not None and self.journal.is_open:
            self.journal.expect(self._file_sha)

    def _note_written(self) -> None:
        if self.journal is not None and self.journal.is_open:
            self.journal.drop_before(self._begun)

    def close_journal(self) -> None:
        """Stop recording commits; delete the journal if the file is complete."""
        if self.journal is not None and self.journal.is_open:
            self.journal.close()
            if self.is_saved:
                self.journal.drop_before(self._begun + 1)

    def take_changes(self, changes: Iterable[Change]) -> None:
        """Apply the entries of another replica's journal, in order."""
        for key, queue_id, offset in changes:
            if queue_id < 0:
                self._delete([key])
            else:
                self._queues_of(key)[queue_id] = offset
                self._note_move(key, queue_id, offset)

    def _note_move(self, key: str, queue_id: int, offset: int) -> None:
        if self.journal is not None and self.journal.is_open:
            self.journal.note(key, queue_id, offset)
        self._count_commit()

    def get(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset to continue from; None if the group has none in this queue."""
        queues = self._offsets.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def commit(
        self, topic: str, group: str, queue_id: int, offset: int, *, backward: bool = False
    ) -> bool:
        """Move a group's offset; return False if a pending reset prevents it.

        Ignores negative offsets (some clients send -1 for 0), and a group's first offset in a topic
        if a feature has it ``ignored``. It also ignores a smaller offset, unless *backward* is set,
        or a client follows a reset that was pushed to it.
        """
        key = f"{topic}@{group}"
        if self._resets and queue_id in self._resets.get(key, ()):
            return False
        queues = self._offsets.get(key)
        if queues is None:
            if offset < 0 or any(ignores(topic, queue_id) for ignores in self.ignored):
                return True
            queues = self._queues_of(key)
        known = queues.get(queue_id, -1)
        if offset == known or offset < 0:
            return True
        if offset < known and not backward and not self._is_pushed(key, queue_id, offset):
            return True
        queues[queue_id] = offset
        self._note_move(key, queue_id, offset)
        return True

    def expect_reset(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Accept, once within a minute, the smaller offset that a client was sent."""
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
        """Set an offset for an operator; the next pull receives it from ``take_reset``."""
        key = f"{topic}@{group}"
        self._resets.setdefault(key, {})[queue_id] = offset
        self._queues_of(key)[queue_id] = offset
        self._note_move(key, queue_id, offset)

    def pending_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return the offset that an operator set and no pull has received yet."""
        if not self._resets:
            return None
        return self._resets.get(f"{topic}@{group}", {}).get(queue_id)

    @property
    def has_resets(self) -> bool:
        """Whether a reset is pending for any pull."""
        return bool(self._resets)

    def take_reset(self, topic: str, group: str, queue_id: int) -> int | None:
        """Return a pending reset for a pull; from then on commits count again.

        Its client eventually commits the new offset, but some clients (Java before 5.2) first
        commit the old offset that they remember.
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
        """Return a copy of the offsets by queue id of one group and topic."""
        return dict(self._offsets.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which *group* has offsets."""
        return sorted(self._topics_of.get(group, ()))

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have offsets in *topic*."""
        return sorted(group for group, topics in self._topics_of.items() if topic in topics)

    def entries(self) -> Iterator[tuple[str, str, dict[int, int]]]:
        """Yield (topic, group, {queue id: offset}); skip keys that are not ``topic@group``."""
        for key in list(self._offsets):
            queues, parts = self._offsets.get(key), _topic_and_group(key)
            if parts is not None and queues is not None:
                yield *parts, queues

    def _queues_of(self, key: str) -> dict[int, int]:
        """Return the offsets of *key*; create an empty dictionary if there are none."""
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
        """Delete every group's offsets in *topic*; return the number of groups."""
        return self._delete([f"{topic}@{group}" for group in self.groups_of(topic)])

    def delete_group(self, group: str) -> int:
        """Delete the offsets of *group*; return the number of topics."""
        return self._delete([f"{topic}@{group}" for topic in self.topics_of(group)])

    def delete_all(self) -> None:
        """Delete everything."""
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
        """Replace the offsets of *target* in *topic* by those of *source*.

        If the source has none, nothing changes.
        """
        key = f"{topic}@{target}"
        offsets = self.queues(topic, source)
        if not self.queues(topic, target).keys() <= offsets.keys() and offsets:
            self._delete([key])
        for queue_id, offset in offsets.items():
            self._queues_of(key)[queue_id] = offset
            self._note_move(key, queue_id, offset)

    def clamp(self, max_offset_of: Callable[[str, int], int]) -> int:
        """Reduce offsets beyond the end of their queue; return how many there were.

        After a power cut the log may lack messages that consumers had already committed. Without
        this, the group would skip as many later messages.
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
    """Split ``topic@group``; return None for keys of another form."""
    topic, separator, group = key.partition(SEPARATOR)
    return (topic, group) if separator and SEPARATOR not in group else None


def _is_light_groups(key: str) -> bool:
    """Return whether the group in ``topic@group`` has the name of a light queue."""
    return is_light(key.partition(SEPARATOR)[2])
