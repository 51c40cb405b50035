"""SinkPublisher: stages parts of batches, and publishes each batch whole and once.

Publishing takes five steps. After the second, the batch will be published, after a
crash by the next process:

    1  the parts are made durable
    2  the intent is written, durably (journal.py)
    3  the messages go into the log and their queues, slice by slice, while these queues are
       held back: consumers see no message of the batch
    4  the queues are released: consumers see all messages of the batch
    5  the log is made durable, the batch is stored as the sink's last one, and intent and
       parts are deleted

A process that finds an intent at its start continues with step 3 before it serves clients. By the
property RH_SINK it finds the messages that are already in the log.

A batch id that is not above the sink's last one was published before, and publishing it again
changes nothing. This requires that one writer numbers all batches of a sink. So a sink with an
owner (stored in ``<store>/rockhopper/sinks/owners.json`` before its first batch) refuses all other
writers.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import msgspec
import structlog

from rockhopper.broker.features.sinks.appender import BatchAppender
from rockhopper.broker.features.sinks.journal import Intent
from rockhopper.broker.features.sinks.shared_batches import SharedBatches
from rockhopper.broker.features.sinks.staged_parts import (
    PartKey,
    StagedPart,
    StagedParts,
    entries,
    find_topics,
    sink_key,
)
from rockhopper.broker.features.sinks.state import (
    INTENT,
    PART,
    PUBLISHED,
    SinksState,
    encode_intent,
    encode_parts,
    encode_published,
)
from rockhopper.broker.kernel.state_channels import StateChannels
from rockhopper.broker.kernel.tables.topics import CatalogListener, TopicConfig
from rockhopper.broker.server.loop.part import Part
from rockhopper.broker.store.files.disk import DISK_FULL_ERRNOS, remove_files
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    NotReplicatedError,
    StoreError,
    TooManyOpenFilesError,
)
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.bodies.sinks import SinkPart, SinkShares
from rockhopper.tasks import complete_in_thread, end_tasks, run_in_background, start_task

log = structlog.get_logger("broker.sinks")

RETRY_S = 1.0
DISPATCH_POLL_S = 0.01
SYNC_AHEAD_BYTES = 16 << 20


class SinkError(Exception):
    """A request contradicts the staged parts; the message says what to do."""


class SinkPublisher(Part, CatalogListener):
    """All sinks of one broker. Belongs to the event loop."""

    def __init__(
        self,
        state: SinksState,
        store: MessageStore,
        appender: BatchAppender,
        channels: StateChannels,
        *,
        staged_bytes_max: int,
        expire_ms: int,
        now_ms: Callable[[], int],
        passed_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._appender = appender
        self._state = state
        self._owners, self._homes = state.owners, state.homes
        self._contents = state.contents
        self.shared = SharedBatches(state.prepared, state.decisions)
        self._staged_bytes_max = staged_bytes_max
        self._expire_ms = expire_ms
        self._now_ms = now_ms
        self._passed_ms = passed_ms
        self._parts = StagedParts(state.directory)
        self._journal = state.journal
        self._publishing: dict[tuple[str, int], asyncio.Task[int]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._syncing: asyncio.Task[None] | None = None
        self._part_channel = channels.channel(PART)
        self._intent_channel = channels.channel(INTENT)
        self._published_channel = channels.channel(PUBLISHED)

    @property
    def published(self) -> dict[str, tuple[int, int]]:
        """Sink id -> its last batch and the number of its messages."""
        return self._state.published

    @property
    def is_syncing(self) -> bool:
        """Whether a part is synced in the background while more is staged."""
        return self._syncing is not None

    @property
    def staged_bytes(self) -> int:
        """The number of staged bytes that wait to be published."""
        return self._parts.size_bytes

    async def open(self) -> None:
        """Read the state of an earlier process, and finish the batch that it had begun to publish.

        Raises:
            StoreError, OSError: the state cannot be read, or the batch cannot be finished.
        """
        self._state.load_published()
        intent = self._journal.load_intent()
        self._parts.load(self._passed_ms())
        if intent is not None:
            await self._resume(intent)
        for sink_id, (last, _) in self.published.items():
            key = sink_key(sink_id)
            self._discard([part for part in self._parts.keys(key) if part[1] <= last])

    async def _resume(self, intent: Intent) -> None:
        paths = [self._parts.directory / name for name in intent.parts]
        if intent.batch_id <= self.last_batch_id(intent.sink_id):
            self._journal.finish(paths)
            return
        missing = [path.name for path in paths if not path.exists()]
        if missing:
            self._journal.set_aside(f"intent-{self._now_ms()}.incomplete.json")
            log.error(
                "a sink batch cannot be finished: staged parts are missing",
                sink=intent.sink_id,
                batch=intent.batch_id,
                missing=missing,
            )
            return
        if intent.from_offset > self._store.log.written_offset:
            intent = msgspec.structs.replace(intent, from_offset=self._store.log.written_offset)
            self._journal.save_intent(intent)
        batch = _batch(intent)
        start = self._appender.count_appended(batch, intent.from_offset)
        staged = sum(count for path in paths for _, count, _ in entries(path))
        if start == 0 and staged != intent.message_count:
            self._journal.set_aside(f"intent-{self._now_ms()}.incomplete.json")
            log.error(
                "a sink batch cannot be published, because a staged part is damaged: run the "
                "batch again",
                sink=intent.sink_id,
                batch=intent.batch_id,
                messages=intent.message_count,
                staged=staged,
            )
            return
        log.warning(
            "finishing a sink batch that a crash interrupted",
            sink=intent.sink_id,
            batch=intent.batch_id,
            messages=intent.message_count,
            in_the_log=start,
        )
        for count in self._appender.append(batch, paths, start):
            start = count
        self._store.visibility.release()
        if start < intent.message_count:
            _report_lost(intent, start)
        await self._settle(intent, paths)

    async def close(self) -> None:
        """Stop publishing; the next process finishes a batch that is half published."""
        tasks: list[asyncio.Task[Any]] = list(self._publishing.values())
        if self._syncing is not None:
            tasks.append(self._syncing)
        await end_tasks(tasks)

    def stage(
        self,
        sink_id: str,
        batch_id: int,
        name: str,
        sequence: int,
        messages: bytes,
        count: int,
        topics: Collection[str],
        owner: str = "",
    ) -> int:
        """Add messages to a part, after *sequence* other requests; return how many it holds.

        A repeated request changes nothing, nor does a request for a published batch.

        Raises:
            SinkError: requests before this one are missing, or the sink is another owner's.
            StoreError: there is no room.
        """
        self._check_owner(sink_id, owner)
        key: PartKey = (sink_key(sink_id), batch_id, name)
        if batch_id <= self.last_batch_id(sink_id) or (sink_id, batch_id) in self._publishing:
            return 0
        part = self._parts.get(key)
        known = part.sequence if part is not None else 0
        if sequence > known:
            raise SinkError(
                f"part {name} of batch {batch_id} of sink {sink_id} continues with sequence "
                f"{known}, not {sequence}: earlier messages were lost in a crash, or expired; "
                "stage the whole part again under another name"
            )
        if sequence < known and part is not None:
            return part.message_count
        if self._parts.size_bytes + len(messages) > self._staged_bytes_max:
            raise DiskFullError(
                f"{self._parts.size_bytes >> 20} MiB are staged for sinks already; at most "
                f"{self._staged_bytes_max >> 20} are allowed (sinkStagedBytesMax)"
            )
        part = self._parts.append_entry(key, sequence, messages, count, topics, self._passed_ms())
        if part.size_bytes - part.synced_bytes >= SYNC_AHEAD_BYTES and not self._syncing:
            part.synced_bytes = part.size_bytes
            self._syncing = run_in_background(
                self._sync_ahead(key, part.path), "syncing a staged part"
            )
        return part.message_count

    async def _sync_ahead(self, key: PartKey, path: Path) -> None:
        """Sync a part while more is staged, so that publishing waits for less."""
        try:
            await complete_in_thread(self._parts.sync, [path])
        except FileNotFoundError:
            return  # The part was forgotten meanwhile.
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS or isinstance(error, TooManyOpenFilesError):
                return  # Publishing reports the error, if it persists.
            # What is on disk now is unknown, and a second fsync would not tell.
            log.error(
                "a staged part could not be flushed to disk", part=path.name, reason=str(error)
            )
            self._discard([key])
        finally:
            self._syncing = None

    def last_batch_id(self, sink_id: str) -> int:
        """The last published batch of a sink; −1 if none."""
        return self.published.get(sink_id, (-1, 0))[0]

    def owner(self, sink_id: str) -> str:
        """The owner of a sink's batches; blank if unknown."""
        return str(self._owners.entries.get(sink_id, ""))

    def home(self, sink_id: str) -> str:
        """The other broker that publishes the batches of a sink; blank if unknown."""
        return str(self._homes.entries.get(sink_id, ""))

    async def note_home(self, sink_id: str, broker: str) -> None:
        """Remember the other broker, on disk. Raises SinkError, OSError."""
        last = self.last_batch_id(sink_id)
        if last >= 0 and self.home(sink_id) != broker:
            raise SinkError(f"sink {sink_id} has published batch {last} here, not on {broker}")
        if self.home(sink_id) != broker:
            self._homes.set(sink_id, broker)
        await self._homes.saved()

    def _check_owner(self, sink_id: str, owner: str) -> None:
        known = self.owner(sink_id)
        if owner and known and owner != known:
            raise SinkError(
                f"sink {sink_id} has batches of {known}, but this is {owner}, whose batches have "
                "the same numbers: use another sink id, or continue with the original writer"
            )

    def abort(self, sink_id: str, batch_id: int, names: list[str]) -> None:
        """Forget the named parts of a batch that is not being published; without names, all.

        Prepared parts stay until the batch is published.
        """
        if (sink_id, batch_id) in self._publishing:
            return
        keys = set(self._parts.keys(sink_key(sink_id), batch_id)) - self.shared.keeps()
        self._discard([key for key in keys if not names or key[2] in names])

    def topic_changed(self, name: str, topic: TopicConfig | None) -> None:
        """Forget the parts that were staged for a deleted topic.

        A part that an earlier process began is forgotten too, because its topics are unknown. Its
        job must run the batch again; otherwise the messages could enter a new topic of the same
        name.
        """
        if topic is not None or not name:
            return
        self._appender.deleted.add(name)
        busy, kept = self._busy(), self.shared.keeps()
        found = [key for key in self._parts.list_for_topic(name) if key not in kept]
        gone = [key for key in found if key[:2] not in busy]
        if gone:
            log.warning("staged sink parts dropped: their topic was deleted", topic=name)
            self._discard(gone)

    def _busy(self) -> set[tuple[str, int]]:
        return {(sink_key(sink_id), batch_id) for sink_id, batch_id in self._publishing}

    def purge(self) -> None:
        """Forget all staged parts and all published batches.

        A batch that is being published is completed.
        """
        self._discard(self._parts.list_untouched_since(self._passed_ms() + 1))
        if self.published:
            self.published.clear()
            self._journal.save_published({})
        self.shared.purge()
        for table in (self._owners, self._homes, self._contents):
            for sink_id in list(table.entries):
                table.forget(sink_id)

    def expire(self) -> None:
        """Forget parts that were neither extended nor published for a long time."""
        busy, kept = self._busy(), self.shared.keeps()
        found = self._parts.list_untouched_since(self._passed_ms() - self._expire_ms)
        stale = [key for key in found if key[:2] not in busy and key not in kept]
        if stale:
            log.warning("staged sink parts expired", parts=len(stale))
            self._discard(stale)

    def _discard(self, keys: list[PartKey]) -> None:
        paths = self._parts.forget(keys)
        if paths:
            remove_files(paths)

    async def prepare(
        self, sink_id: str, batch_id: int, parts: list[SinkPart], owner: str = ""
    ) -> tuple[int, bool]:
        """Keep parts until their batch is published; the first half of ``publish``.

        Raises:
            SinkError, StoreError, OSError: as ``publish``; the parts are not kept.
        """
        self._check_owner(sink_id, owner)
        if (task := self._publishing.get((sink_id, batch_id))) is not None:
            await asyncio.shield(task)
        last, count = self.published.get(sink_id, (-1, 0))
        if batch_id <= last:
            await self._published_channel.wait_until_confirmed()
            return (count if batch_id == last else 0), True
        if (held := self.shared.get_prepared_batch(sink_id)) > batch_id:
            raise SinkError(
                f"sink {sink_id} is preparing batch {held} here, but this is batch {batch_id}: "
                "another job uses the same sink id, so use another one"
            )
        staged = self._check_parts(sink_id, batch_id, parts)
        await self._check_topics(sink_id, batch_id, staged)
        await self._own(sink_id, owner)
        paths = [part.path for part in staged]
        if paths:
            await self._on_disk(sink_id, batch_id, lambda: self._parts.sync(paths))
        await self._replicate_parts(paths)
        await self.shared.prepare(sink_id, batch_id, [part.name for part in parts])
        return sum(part.message_count for part in parts), False

    async def decide(
        self, sink_id: str, batch_id: int, shares: SinkShares, owner: str = "", content: str = ""
    ) -> tuple[int, SinkShares]:
        """Decide which parts on which brokers make a batch; return the decision.

        If an earlier batch is decided but not yet published here, its decision is returned. Without
        *shares* nothing is decided: the result is the existing decision, −1 if there is none. A
        published batch has no decision.

        Raises:
            SinkError: the sink is another owner's. StoreError, OSError: the outcome is unknown.
        """
        self._check_owner(sink_id, owner)
        if batch_id <= self.last_batch_id(sink_id):
            await self._published_channel.wait_until_confirmed()
            return batch_id, {}
        # Remains of a published batch after a kill or a failover do not count.
        self.shared.published(sink_id, self.last_batch_id(sink_id))
        if shares and self.shared.decision(sink_id) is None:
            await self._own(sink_id, owner)
            await self._note_content(sink_id, batch_id, content)
            await self.shared.decide(sink_id, batch_id, shares)
        await self._published_channel.wait_until_confirmed()
        return self.shared.decision(sink_id) or (-1, {})

    def content(self, sink_id: str, batch_id: int) -> str:
        """The writer's description of a sink's last batch; blank if unknown or another."""
        return self._contents.of_batch(sink_id, batch_id)

    async def _note_content(self, sink_id: str, batch_id: int, content: str) -> None:
        if content:
            self._contents.set(sink_id, [batch_id, content])
            await self._contents.saved()

    async def _own(self, sink_id: str, owner: str) -> None:
        if owner and not self.owner(sink_id):
            self._owners.set(sink_id, owner)
            await self._owners.saved()

    async def publish(
        self, sink_id: str, batch_id: int, parts: list[SinkPart], owner: str = "", content: str = ""
    ) -> tuple[int, bool]:
        """Publish a batch; return its message count, and whether it was published before.

        If the caller is cancelled, the batch is published nevertheless.

        Raises:
            SinkError: a part differs from its writer's description, a topic was deleted, or the
            sink is
                another owner's; nothing is published.
            StoreError, OSError: nothing is published.
        """
        self._check_owner(sink_id, owner)
        last, count = self.published.get(sink_id, (-1, 0))
        if batch_id <= last:
            await self._published_channel.wait_until_confirmed()
            return (count if batch_id == last else 0), True
        key = (sink_id, batch_id)
        task = self._publishing.get(key)
        repeated = task is not None
        if task is None:
            task = start_task(self._publish(sink_id, batch_id, parts, owner, content))
            self._publishing[key] = task
            task.add_done_callback(lambda _: self._publishing.pop(key, None))
        return await asyncio.shield(task), repeated

    async def _publish(
        self, sink_id: str, batch_id: int, parts: list[SinkPart], owner: str, content: str
    ) -> int:
        async with self._one_at_a_time:
            self._check_owner(sink_id, owner)
            if batch_id <= self.last_batch_id(sink_id):
                return self.published[sink_id][1]
            self._store.check_writable()
            staged = self._check_parts(sink_id, batch_id, parts)
            await self._check_topics(sink_id, batch_id, staged)
            await self._own(sink_id, owner)
            await self._note_content(sink_id, batch_id, content)
            paths = [part.path for part in staged]
            intent = Intent(
                sink_id,
                batch_id,
                sum(part.message_count for part in parts),
                [path.name for path in paths],
                self._store.log.written_offset,
            )
            self._appender.deleted.clear()
            if intent.message_count:
                await self._commit_to(intent, paths)
                await self._replicate_intent(intent, paths)
                await self._append(intent, paths)
            await self._settle(intent, paths)
            await self._published_channel.wait_until_confirmed()
            return intent.message_count

    async def _replicate_intent(self, intent: Intent, paths: list[Path]) -> None:
        await self._replicate_parts(paths)
        self._intent_channel.note(encode_intent(intent))
        # The batch will be published, here or elsewhere; what follows waits for the followers.
        with contextlib.suppress(NotReplicatedError):
            await self._intent_channel.wait_until_confirmed()

    async def _replicate_parts(self, paths: list[Path]) -> None:
        if self._part_channel.is_replicated:
            for payload in encode_parts(paths):
                self._part_channel.note(payload)
                self._part_channel.flush()
                await asyncio.sleep(0)

    def _check_parts(self, sink_id: str, batch_id: int, parts: list[SinkPart]) -> list[StagedPart]:
        staged: list[StagedPart] = []
        if len({part.name for part in parts}) < len(parts):
            raise SinkError(f"batch {batch_id} of sink {sink_id} names a part twice")
        for wanted in parts:
            part = self._parts.get((sink_key(sink_id), batch_id, wanted.name))
            count = part.message_count if part is not None else 0
            if count != wanted.message_count:
                raise SinkError(
                    f"part {wanted.name} of batch {batch_id} of sink {sink_id} contains {count} "
                    f"messages, not {wanted.message_count}: it was lost in a crash, expired, or "
                    "belonged to a topic that was deleted since; run the batch again"
                )
            if part is not None:
                staged.append(part)
        return staged

    async def _check_topics(self, sink_id: str, batch_id: int, parts: list[StagedPart]) -> None:
        topics: set[str] = set()
        kept = {f"{key[0]}-{key[1]}-{key[2]}.part" for key in self.shared.keeps()}
        for part in parts:
            if part.path.name in kept:
                continue  # too late to refuse these messages: they are dropped with their topic
            if part.topics is None:
                part.topics = await complete_in_thread(find_topics, part.path)
            topics |= part.topics
        missing = self._appender.missing(topics)
        if missing:
            raise SinkError(
                f"batch {batch_id} of sink {sink_id} has messages for the topic {missing[0]}, "
                "which was deleted after they were staged: create it again and publish the batch "
                "again, or run the batch again"
            )

    async def _commit_to(self, intent: Intent, paths: list[Path]) -> None:
        """Make sure that the batch will be published. Raises SinkError, OSError: it will not."""

        def sync_and_save() -> None:
            self._parts.sync(paths)
            self._journal.save_intent(intent)

        try:
            await self._on_disk(intent.sink_id, intent.batch_id, sync_and_save)
        except SinkError:
            self._journal.withdraw_intent()
            raise

    async def _on_disk(self, sink_id: str, batch_id: int, work: Callable[[], None]) -> None:
        try:
            await complete_in_thread(work)
        except FileNotFoundError as error:
            # Parts staged since then, for a repetition of the batch, are not included.
            raise SinkError(
                f"parts of batch {batch_id} of sink {sink_id} were dropped while they were "
                "prepared: run the batch again"
            ) from error
        except OSError as error:
            if error.errno in DISK_FULL_ERRNOS or isinstance(error, TooManyOpenFilesError):
                raise
            # What is on disk now is unknown, and a second fsync would not tell.
            self._discard(self._parts.keys(sink_key(sink_id), batch_id))
            raise SinkError(
                f"the disk did not keep the staged parts of batch {batch_id} of sink {sink_id} "
                f"({error.strerror}), so they are dropped: check the disk, then run the batch "
                "again"
            ) from error

    async def _append(self, intent: Intent, paths: list[Path]) -> None:
        """Append all messages, then make them visible.

        A failed step is retried, because the batch must be published.

        Raises:
            StoreFailedError: only the next process can complete the batch.
        """
        done = 0
        failing = False
        while True:
            try:
                for count in self._appender.append(_batch(intent), paths, done):
                    done = count
                    await asyncio.sleep(0)
                await self._wait_for_dispatch(self._store.log.written_offset)
                break
            except (StoreError, OSError) as error:
                if self._store.failure is not None:
                    raise
                if not failing:
                    log.error(
                        "a sink batch waits for the store", sink=intent.sink_id, reason=str(error)
                    )
                failing = True
            await asyncio.sleep(RETRY_S)
        self._store.visibility.release()
        if done < intent.message_count:
            _report_lost(intent, done)

    async def _wait_for_dispatch(self, end_offset: int) -> None:
        await self._store.safe_point.wait(end_offset)
        while not self._store.safe_point.has_dispatched(end_offset):  # noqa: ASYNC110 - rarely, and not for long
            await asyncio.sleep(DISPATCH_POLL_S)

    async def _settle(self, intent: Intent, paths: list[Path]) -> None:
        """Sync the batch and replace its intent by the result; retry until this succeeds."""
        self.published[intent.sink_id] = (intent.batch_id, intent.message_count)
        last = {intent.sink_id: (intent.batch_id, intent.message_count)}
        self._published_channel.note(encode_published(last))
        while True:
            try:
                await self._store.safe_point.wait_for_disk(self._store.log.written_offset)
                await complete_in_thread(self._journal.save_published, dict(self.published))
                await complete_in_thread(self._journal.finish, paths)
                break
            except (StoreError, OSError) as error:
                if self._store.failure is not None:
                    raise
                log.error("a sink batch waits for the disk", sink=intent.sink_id, reason=str(error))
            await asyncio.sleep(RETRY_S)
        self._discard(self._parts.keys(sink_key(intent.sink_id), intent.batch_id))
        self.shared.published(intent.sink_id, intent.batch_id)


def _report_lost(intent: Intent, found: int) -> None:
    log.error(
        "a sink batch lost messages: a staged part is damaged",
        sink=intent.sink_id,
        batch=intent.batch_id,
        published=found,
        staged=intent.message_count,
    )


def _batch(intent: Intent) -> str:
    return f"{sink_key(intent.sink_id)}:{intent.batch_id}"
