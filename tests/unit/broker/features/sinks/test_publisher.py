"""SinkPublisher: a batch is published whole and once, whatever goes wrong around it."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.sinks.journal import Intent, SinkJournal
from rockhopper.broker.features.sinks.publisher import SinkError, SinkPublisher
from rockhopper.broker.features.sinks.staged_parts import StagedParts, items
from rockhopper.broker.settings.broker_config import FlushDiskType
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    StoreFailedError,
    TooManyOpenFilesError,
)
from rockhopper.broker.store.log.commit_log import CommitLog
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.queues.consume_queue import ConsumeQueue
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkPart, SinkRun, encode_sink_body
from tests.support.held_call import HeldCall
from tests.support.open_stores import bodies, put
from tests.support.sink_rig import PARTS, SINK, WHOLE, Sinks
from tests.support.store_listeners import Reader
from tests.support.turns import until


async def test_a_batch_that_was_published_is_not_published_again(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(5)
        assert await sinks.publish(5) == (len(WHOLE), False)
        sinks.stage(5)
        assert await sinks.publish(5) == (len(WHOLE), True)
        assert await sinks.publish(3) == (0, True)
        assert bodies(sinks.store) == WHOLE
        assert sinks.publisher.staged_bytes == 0


async def test_what_is_in_the_last_batch_of_a_sink_is_known(tmp_path: Path) -> None:
    parts = [SinkPart(name, len(texts)) for name, texts in PARTS.items()]
    async with Sinks(tmp_path / "store") as sinks:
        for batch, content in ((0, "9:ab"), (1, "9:cd")):
            sinks.stage(batch)
            await sinks.publisher.publish(SINK, batch, parts, content=content)
        # A try with other rows changes nothing.
        await sinks.publisher.publish(SINK, 1, parts, content="10:ef")
        assert [sinks.publisher.content(SINK, batch) for batch in range(3)] == ["", "9:cd", ""]
        await sinks.publisher.decide(SINK, 2, {"broker-a": parts}, content="9:01")
        assert sinks.publisher.content(SINK, 2) == "9:01"
        sinks.publisher.purge()
        assert sinks.publisher.content(SINK, 2) == ""


@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC, FlushDiskType.SYNC])
async def test_nobody_sees_a_part_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush: FlushDiskType
) -> None:
    async with Sinks(tmp_path / "store", flush_disk_type=flush) as sinks:
        sinks.stage(0)
        seen: list[tuple[int, int]] = []
        real_append, real_flushed = ConsumeQueue.append_many, MessageStore.note_flushed

        def look() -> None:
            found = sinks.store.reading.query("TopicA", "a0", 1, 0, 2**62)
            seen.append((sinks.store.reading.queue_range("TopicA", 0)[1], len(found)))

        def append_many(queue: ConsumeQueue, *arguments: Any) -> None:
            real_append(queue, *arguments)
            look()

        def flushed(store: MessageStore, offset: int) -> None:
            real_flushed(store, offset)
            look()

        monkeypatch.setattr(ConsumeQueue, "append_many", append_many)
        monkeypatch.setattr(MessageStore, "note_flushed", flushed)
        await sinks.publish(0)
        look()
        assert len(seen) > 4
        assert set(seen) == {(0, 0), (len(WHOLE), 1)}
        assert bodies(sinks.store) == WHOLE


async def test_what_others_send_to_other_queues_is_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        arrived: list[int] = []
        tail = sinks.store.staging.tail("TopicA", 0)
        tail.waiters = Reader(lambda _tail, end, _codes: arrived.append(end))
        seen: list[tuple[int, int]] = []
        real = ConsumeQueue.append_many

        def append_many(queue: ConsumeQueue, *arguments: Any) -> None:
            real(queue, *arguments)
            if not seen:
                seen.append((0, 0))
                for queue_id in (0, 1):
                    put(sinks.store, b"from elsewhere", queue_id=queue_id)
                ends = [
                    sinks.store.reading.queue_range("TopicA", queue_id)[1] for queue_id in (0, 1)
                ]
                seen.append((ends[0], ends[1]))

        monkeypatch.setattr(ConsumeQueue, "append_many", append_many)
        await sinks.publish(0)
        assert seen[1] == (0, 1)
        assert arrived == [len(WHOLE) + 1]


async def test_purging_in_the_midst_of_it_leaves_what_nobody_has_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        put(sinks.store, b"before")
        sinks.stage(0)
        purged: list[int] = []
        real = ConsumeQueue.append_many

        def append_many(queue: ConsumeQueue, *arguments: Any) -> None:
            real(queue, *arguments)
            if queue.topic == "TopicA" and len(purged) < 2:
                purged.append(sinks.store.visibility.purge_topics(["TopicA"]))

        monkeypatch.setattr(ConsumeQueue, "append_many", append_many)
        await sinks.publish(0)
        assert purged == [1, 0]
        assert sinks.store.reading.queue_range("TopicA", 0) == (1, len(WHOLE) + 1)


async def test_a_store_that_refuses_in_the_midst_gets_the_rest_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.features.sinks.publisher.RETRY_S", 0.0)
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        real = CommitLog._pwrite
        calls = 0

        def fail_sometimes(log: CommitLog, file: Any, offset: int, data: bytes) -> None:
            nonlocal calls
            calls += 1
            if calls in (2, 3, 5):
                raise DiskFullError("the disk is full")
            real(log, file, offset, data)

        monkeypatch.setattr(CommitLog, "_pwrite", fail_sometimes)
        ends: list[int] = []
        real_sleep = asyncio.sleep

        async def sleep(delay_s: float) -> None:
            ends.append(sinks.store.reading.queue_range("TopicA", 0)[1])
            await real_sleep(0)

        monkeypatch.setattr("rockhopper.broker.features.sinks.publisher.asyncio.sleep", sleep)
        await sinks.publish(0)
        assert calls > 5
        assert set(ends) <= {0, len(WHOLE)}
        assert bodies(sinks.store) == WHOLE


async def test_a_store_that_has_failed_leaves_the_batch_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    async with Sinks(root) as sinks:
        sinks.stage(0)
        real = SinkJournal.save_intent

        def fail(journal: SinkJournal, intent: Intent) -> None:
            real(journal, intent)
            sinks.store.fail(StoreFailedError("the disk is gone"))

        with monkeypatch.context() as patch:
            patch.setattr(SinkJournal, "save_intent", fail)
            with pytest.raises(StoreFailedError, match="the disk is gone"):
                await sinks.publish(0)
    async with Sinks(root) as again:
        assert bodies(again.store) == WHOLE


async def test_a_part_that_cannot_be_read_for_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rockhopper.broker.features.sinks.publisher.RETRY_S", 0.0)
    failures = [600, 50]

    def read(path: Path) -> Iterator[SinkMessage | SinkRun]:
        fails_at = failures.pop() if failures else -1
        for number, message in enumerate(items(path)):
            if number == fails_at:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            yield message

    monkeypatch.setattr("rockhopper.broker.features.sinks.appender.items", read)
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        await sinks.publish(0)
        assert not failures
        put(sinks.store, b"behind")
        assert bodies(sinks.store) == [*WHOLE, b"behind"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_batch_for_a_topic_that_was_deleted_is_refused(
    tmp_path: Path, restarted: bool
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        if not restarted:
            await refuses_without_its_topic(sinks)
    if restarted:
        async with Sinks(tmp_path / "store") as again:
            await refuses_without_its_topic(again)


async def refuses_without_its_topic(sinks: Sinks) -> None:
    topic = sinks.topics.get("TopicA")
    assert topic is not None
    sinks.topics.delete("TopicA")
    # Made anew, it is another topic: what was staged is not for that one.
    sinks.topics.put(topic)
    with pytest.raises(
        SinkError, match="belonged to a topic that was deleted since; run the batch"
    ):
        await sinks.publish(0)
    assert sinks.publisher.last_batch_id(SINK) == -1
    assert sinks.publisher.staged_bytes == 0
    sinks.stage(0)
    assert await sinks.publish(0) == (len(WHOLE), False)
    assert bodies(sinks.store) == WHOLE


async def test_a_topic_deleted_in_the_midst_of_it_takes_its_messages_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        real = SinkJournal.save_intent

        def delete(journal: SinkJournal, intent: Intent) -> None:
            real(journal, intent)
            topic = sinks.topics.get("TopicA")
            sinks.topics.delete("TopicA")
            assert topic is not None
            sinks.topics.put(topic)

        monkeypatch.setattr(SinkJournal, "save_intent", delete)
        with capture_logs() as logs:
            assert await sinks.publish(0) == (len(WHOLE), False)
        assert [entry["topics"] for entry in logs if "dropped" in entry["event"]] == [
            {"TopicA": len(WHOLE)}
        ]
        assert bodies(sinks.store) == []


async def test_a_torn_part_is_cut_and_its_batch_refused(tmp_path: Path) -> None:
    root = tmp_path / "store"
    async with Sinks(root) as sinks:
        sinks.stage(0)
    part = next((root / "rockhopper" / "sinks").glob("*-0-0.0.part"))
    with part.open("r+b") as file:
        file.truncate(part.stat().st_size - 10)
    async with Sinks(root) as again:
        with pytest.raises(SinkError, match="contains 600 messages, not 700"):
            await again.publish(0)
        assert bodies(again.store) == []


async def test_parts_that_nobody_publishes_are_forgotten_after_a_time(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        # A clock that is set forward does not make it a time.
        sinks.clock.advance(240 * 3_600_000)
        sinks.passed.advance(3_600_000)
        sinks.publisher.expire()
        assert sinks.publisher.staged_bytes > 0
        sinks.passed.advance(1)
        sinks.publisher.expire()
        assert sinks.publisher.staged_bytes == 0
        assert not list((tmp_path / "store" / "rockhopper" / "sinks").glob("*.part"))


async def test_parts_that_the_disk_did_not_keep_are_dropped_and_the_batch_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        with monkeypatch.context() as patch:

            def fail(_descriptor: int) -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

            patch.setattr(disk, "sync_file", fail)
            with pytest.raises(SinkError, match="run the batch again"):
                await sinks.publish(0)
        assert sinks.publisher.staged_bytes == 0
        sinks.stage(0)
        assert await sinks.publish(0) == (len(WHOLE), False)
        assert bodies(sinks.store) == WHOLE


async def test_parts_outlive_a_shortage_of_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        with monkeypatch.context() as patch:

            def fail(*_: object) -> int:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

            patch.setattr(os, "open", fail)
            with pytest.raises(TooManyOpenFilesError, match="ulimit -n"):
                await sinks.publish(0)
        assert await sinks.publish(0) == (len(WHOLE), False)
        assert bodies(sinks.store) == WHOLE


async def test_a_part_that_is_damaged_in_the_midst_of_publishing_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        part = next((tmp_path / "store" / "rockhopper" / "sinks").glob("*-1.0.part"))
        real = SinkJournal.save_intent

        def spoil(journal: SinkJournal, intent: Intent) -> None:
            real(journal, intent)
            os.truncate(part, part.stat().st_size - 10)

        monkeypatch.setattr(SinkJournal, "save_intent", spoil)
        with capture_logs() as logs:
            await sinks.publish(0)
        assert [entry["published"] for entry in logs if entry["log_level"] == "error"] == [1000]
        assert bodies(sinks.store) == WHOLE[:1000]


async def test_a_batch_whose_part_was_damaged_before_any_of_it_was_stored_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        with monkeypatch.context() as patch:

            async def die(*_: object) -> None:
                raise StoreFailedError("killed")

            patch.setattr(SinkPublisher, "_append", die)
            with pytest.raises(StoreFailedError):
                await sinks.publish(0)
        part = next((tmp_path / "store" / "rockhopper" / "sinks").glob("*-1.0.part"))
        os.truncate(part, part.stat().st_size - 10)
    async with Sinks(tmp_path / "store") as sinks:
        assert bodies(sinks.store) == []
        assert sinks.publisher.last_batch_id(SINK) == -1
        await sinks.run_batch(0)
        assert bodies(sinks.store) == WHOLE


async def test_a_full_disk_refuses_a_batch_before_anything_is_noted(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        sinks.store.retention.space.full_reason = "the disk is full"
        with pytest.raises(DiskFullError, match="full"):
            await sinks.publish(0)
        assert not (tmp_path / "store" / "rockhopper" / "sinks" / "intent.json").exists()
        sinks.store.retention.space.full_reason = None
        assert await sinks.publish(0) == (len(WHOLE), False)
        assert bodies(sinks.store) == WHOLE


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_large_part_is_put_on_disk_while_more_is_staged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    synced: list[list[Path]] = []

    def sync(parts: StagedParts, paths: list[Path]) -> None:
        synced.append(paths)
        if not is_kept:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with Sinks(tmp_path / "store") as sinks:
        with monkeypatch.context() as patched:
            patched.setattr("rockhopper.broker.features.sinks.publisher.SYNC_AHEAD_BYTES", 1)
            patched.setattr(StagedParts, "sync", sync)
            sinks.stage(0)
            await until(lambda: bool(synced) and not sinks.publisher.is_syncing)
        if is_kept:
            assert await sinks.publish(0) == (len(WHOLE), False)
        else:
            with pytest.raises(SinkError, match=r"part 0.0 of batch 0 .* contains 0 messages"):
                await sinks.publish(0)
        assert len(synced[0]) == 1


@pytest.mark.parametrize("is_publishing", [True, False])
async def test_a_stop_waits_for_the_thread_that_syncs_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_publishing: bool
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        held = HeldCall()
        monkeypatch.setattr(StagedParts, "sync", held)
        if not is_publishing:
            module = "rockhopper.broker.features.sinks.publisher"
            monkeypatch.setattr(f"{module}.SYNC_AHEAD_BYTES", 1)
        sinks.stage(0)
        publishing = asyncio.ensure_future(sinks.publish(0)) if is_publishing else None
        assert await held.is_awaited_by(sinks.publisher.close())
        if publishing is not None:
            await asyncio.gather(publishing, return_exceptions=True)
        monkeypatch.undo()


async def test_parts_forgotten_while_they_are_made_ready_take_no_others_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(0)
        real = StagedParts.sync
        body = encode_sink_body([SinkMessage("TopicA", 0, 0, 1, "", b"again")])

        def sync(parts: StagedParts, paths: list[Path]) -> None:
            sinks.publisher.abort(SINK, 0, list(PARTS))
            sinks.publisher.stage(SINK, 0, "0.again", 0, body, 1, {"TopicA"})
            real(parts, paths)

        monkeypatch.setattr(StagedParts, "sync", sync)
        wanted = [SinkPart(name, len(texts)) for name, texts in PARTS.items()]
        with pytest.raises(SinkError, match="were dropped while they were prepared"):
            await sinks.publisher.prepare(SINK, 0, wanted)
        monkeypatch.undo()
        again = [SinkPart("0.again", 1)]
        assert await sinks.publisher.publish(SINK, 0, again) == (1, False)
        assert bodies(sinks.store) == [b"again"]
