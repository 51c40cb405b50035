"""The scrub: what it finds, how fast it may, and that readers are not in its way."""

import asyncio

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.store import scrubbing
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.store.scrubbing import CHUNK_BYTES, RECORD_COST_BYTES, ScrubSettings
from tests.support.hang import HANG_S
from tests.support.held_call import HeldCall
from tests.support.open_stores import Stores, messages, put
from tests.support.rot import overwrite
from tests.support.turns import until

TOPIC = "TopicA"
HOUR_MS = 3_600_000


@pytest.fixture
def store(stores: Stores) -> MessageStore:
    store = stores.open()
    for number in range(40):
        put(
            store, b"body %d" % number + bytes(200), queue_id=number % 2, properties="TAGS\x01a\x02"
        )
    store.reading.reader.tail_start = store.log.written_offset
    return store


def scrub(store: MessageStore) -> list[dict[str, object]]:
    """Do one pass; what was said meanwhile."""
    with capture_logs() as logs:
        while store.scrub.passes.step():
            pass
    store.scrub.passes.start_pass()
    return [dict(entry) for entry in logs]


def test_a_sound_store_is_left_as_it_is(store: MessageStore, stores: Stores) -> None:
    before = {path: path.read_bytes() for path in stores.root.rglob("0*") if path.is_file()}
    assert scrub(store) == []
    assert {path: path.read_bytes() for path in before} == before
    assert store.scrub.passes.pass_count == 1


# Body, place, magic.
@pytest.mark.parametrize("at", [90, 35, 5])
def test_rot_is_found_before_anybody_reads(store: MessageStore, stores: Stores, at: int) -> None:
    place = messages(store)[3].commit_log_offset
    overwrite(stores.root / "commitlog" / f"{0:020d}", place + at, b"\x55")
    for _ in range(2):
        entries = scrub(store)
        assert store.reading.reader.damaged_count == 1
    assert entries == []
    assert [message.queue_offset for message in messages(store)] == [
        offset for offset in range(20) if offset != 3
    ]


# Commit log offset, size, tags code.
@pytest.mark.parametrize("at", [6, 10, 19])
def test_entries_are_mended_before_anybody_reads(
    store: MessageStore, stores: Stores, at: int
) -> None:
    path = stores.root / "consumequeue" / TOPIC / "1" / f"{0:020d}"
    held = overwrite(path, 5 * 20 + at, b"\x55")
    (entry,) = scrub(store)
    assert (entry["log_level"], entry["queue"], entry["offset"]) == ("warning", 1, 5)
    assert path.read_bytes() == held
    assert (store.scrub.mended_count, store.reading.reader.damaged_count) == (1, 0)


@pytest.mark.parametrize("at", [6, 10, 19])
def test_entries_of_light_queues_are_mended(stores: Stores, at: int) -> None:
    store = stores.open(light_queues_enabled=True, multi_dispatch_enabled=True)
    for number in range(4):
        names = "INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02TAGS\x01a\x02"
        put(store, b"%d" % number, properties=names)
    store.reading.reader.tail_start = store.log.written_offset
    assert scrub(store) == []
    path = stores.root / "consumequeue" / "%LMQ%b" / "0" / f"{0:020d}"
    held = overwrite(path, 2 * 20 + at, b"\x55")
    (entry,) = scrub(store)
    assert (entry["log_level"], entry["topic"], entry["offset"]) == ("warning", "%LMQ%b", 2)
    assert path.read_bytes() == held


def test_records_of_deleted_topics_are_no_concern(store: MessageStore) -> None:
    store.visibility.delete_topics([TOPIC])
    put(store, b"anew")
    store.reading.reader.tail_start = store.log.written_offset
    assert scrub(store) == []
    assert [message.body for message in messages(store)] == [b"anew"]


def test_the_tail_of_the_log_is_left_for_later(store: MessageStore) -> None:
    put(store, b"new")
    while store.scrub.passes.step():
        pass
    assert store.scrub.passes.log_offset == store.reading.reader.tail_start


def test_a_step_costs_no_less_than_its_records(store: MessageStore) -> None:
    assert store.scrub.passes.step() == 16 * RECORD_COST_BYTES


def test_off_peak_hours_have_a_rate_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    settings = ScrubSettings(10, 20, "02;03", 1)
    assert [settings.rate_at(hour * HOUR_MS) for hour in (1, 2, 3, 4)] == [10, 20, 20, 10]
    assert settings._replace(off_peak_hours="").rate_at(2 * HOUR_MS) == 10


def test_the_rate_bounds_what_is_read(store: MessageStore) -> None:
    async def chunk() -> float:
        return await store.scrub.do_a_chunk()

    store.scrub.settings = ScrubSettings(8192, 8192, "", 60_000)
    assert asyncio.run(chunk()) == 2.0
    store.scrub.settings = ScrubSettings(CHUNK_BYTES, CHUNK_BYTES, "", 60_000)
    asyncio.run(chunk())
    assert asyncio.run(chunk()) == 60.0
    store.scrub.settings = ScrubSettings(0, 0, "", 60_000)
    assert asyncio.run(chunk()) == 60.0


async def test_other_files_are_looked_at_after_each_pass(store: MessageStore) -> None:
    class Others:
        looks = 0

        async def scrub(self) -> None:
            self.looks += 1

    others = Others()
    store.scrub.others.append(others)
    store.scrub.settings = ScrubSettings(CHUNK_BYTES, CHUNK_BYTES, "", 60_000)
    while await store.scrub.do_a_chunk() < 60:
        assert others.looks == 0
    assert others.looks == 1


async def test_a_running_store_scrubs_itself(stores: Stores) -> None:
    store = await stores.start(scrub_bytes_per_second=1 << 30, scrub_interval_ms=10)
    put(store, b"x" * 50)
    store.reading.reader.tail_start = store.log.written_offset
    overwrite(stores.root / "commitlog" / f"{0:020d}", 90, b"y")
    while not store.reading.reader.damaged_count:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await store.close()


async def test_the_scrub_ends_when_told_at_the_moment_it_is_woken(stores: Stores) -> None:
    store = await stores.start(scrub_bytes_per_second=1 << 30, scrub_interval_ms=3_600_000)
    for turns in range(4):
        await until(lambda: bool(store.scrub.wake._waiters))
        store.scrub.wake.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping = asyncio.create_task(store.scrub.stop())
        await asyncio.wait([stopping], timeout=HANG_S)
        assert stopping.done(), turns
        store.scrub.start()
    await store.close()


async def test_a_stop_waits_for_the_thread_that_has_a_file_open(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await stores.start(scrub_bytes_per_second=1 << 30, scrub_interval_ms=3_600_000)
    await until(lambda: bool(store.scrub.wake._waiters))
    held = HeldCall()
    monkeypatch.setattr(scrubbing, "_bring_into_memory", held)
    monkeypatch.setattr(store.scrub.passes, "places", lambda: [("file", 0, 1)])
    store.scrub.wake.set()
    assert await held.is_awaited_by(store.scrub.stop())
    await store.close()
