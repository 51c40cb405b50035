"""Light queues: one record in many queues, through kills, lost queues, full disks and deletion.

The numbers in INNER_MULTI_QUEUE_OFFSET, and which queue holds what, are those of Apache RocketMQ
5.5.0 with enableLmq and enableMultiDispatch, sent the same.
"""

import errno
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import RecordTooLargeError, StoreError
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.protocol.store.light_queues import light_places, light_queue_error
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from tests.support.derived_stores import audited, derive, queue_files
from tests.support.killed_store import copy_killed
from tests.support.open_stores import (
    Stores,
    bodies,
    close,
    flush,
    messages,
    open_store,
    put,
    stage,
)

ENABLED: dict[str, Any] = {"light_queues_enabled": True, "multi_dispatch_enabled": True}
NUMBERS = "INNER_MULTI_QUEUE_OFFSET"


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    found = Stores(tmp_path)
    yield found
    found.close_all()


def dispatch(store: MessageStore, names: str, body: bytes = b"x", topic: str = "TopicA") -> None:
    put(store, body, topic, properties=f"UNIQ_KEY\x01A{body.decode()}\x02{_naming(names)}")


def _naming(names: str) -> str:
    return f"INNER_MULTI_DISPATCH\x01{names}\x02"


def numbers(store: MessageStore) -> list[str | None]:
    return [message.properties.get(NUMBERS) for message in messages(store)]


def fill(store: MessageStore) -> None:
    dispatch(store, "%LMQ%a,%LMQ%b", b"1")
    dispatch(store, "%LMQ%b", b"2")
    stage(store, b"plain")
    dispatch(store, "%LMQ%d,%LMQ%d", b"3")
    dispatch(store, "%LMQ%$TopicA$part,%LMQ%t%+", b"4")
    put(store, b"direct", "%LMQ%a")
    dispatch(store, "%LMQ%a", b"5")


EXPECTED = {
    "%LMQ%a": [b"1", b"direct", b"5"],
    "%LMQ%b": [b"1", b"2"],
    "%LMQ%d": [b"3"],
    "%LMQ%$TopicA$part": [b"4"],
    "%LMQ%t%+": [b"4"],
}


def found(store: MessageStore) -> dict[str, list[bytes]]:
    return {name: bodies(store, name) for name in EXPECTED}


def test_a_message_is_in_its_queue_and_in_those_that_it_names(stores: Stores) -> None:
    store = stores.open(**ENABLED)
    fill(store)
    assert found(store) == EXPECTED
    assert bodies(store) == [b"1", b"2", b"plain", b"3", b"4", b"5"]
    assert numbers(store) == ["0,0", "1", None, "0,0", "0,0", "2"]
    assert store.reading.queue_range("%LMQ%a", 0) == (0, 3)


def test_units_point_to_the_one_record(stores: Stores) -> None:
    store = stores.open(**ENABLED)
    put(store, b"x", properties=f"TAGS\x01red\x02{_naming('%LMQ%a')}")
    own, light = (
        (stores.root / "consumequeue" / topic / "0" / f"{0:020d}").read_bytes()[:20]
        for topic in ("TopicA", "%LMQ%a")
    )
    assert own == light
    assert CONSUME_QUEUE_UNIT.unpack(light)[0] == 0


@pytest.mark.parametrize("lost", ["nothing", "consumequeue"])
def test_they_survive_a_kill_and_the_loss_of_their_files(
    stores: Stores, tmp_path: Path, lost: str
) -> None:
    store = stores.open(**ENABLED)
    fill(store)
    flush(store)
    killed = copy_killed(stores.root, tmp_path / "killed")
    (killed / "lock").unlink(missing_ok=True)
    shutil.rmtree(killed / lost, ignore_errors=True)
    again = stores.open(killed, **ENABLED)
    assert found(again) == EXPECTED
    dispatch(again, "%LMQ%b,%LMQ%a", b"6")
    assert bodies(again, "%LMQ%b") == [b"1", b"2", b"6"]
    assert numbers(again)[-1] == "2,3"


def test_the_jobs_make_and_know_them(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_store(root, **ENABLED)
    fill(store)
    close(store)
    assert audited(root).is_good
    before = queue_files(root)
    shutil.rmtree(root / "consumequeue" / "%LMQ%a")
    assert not audited(root).is_good
    derive(root)
    assert queue_files(root) == before
    assert audited(root).is_good


def test_a_deleted_light_queue_stays_deleted(stores: Stores, tmp_path: Path) -> None:
    store = stores.open(**ENABLED)
    dispatch(store, "%LMQ%a", b"1")
    store.visibility.delete_topics(["%LMQ%a"]).remove()
    assert bodies(store, "%LMQ%a") == []
    dispatch(store, "%LMQ%a", b"2")
    assert numbers(store) == ["0", "0"]
    flush(store)
    killed = copy_killed(stores.root, tmp_path / "killed")
    shutil.rmtree(killed / "consumequeue")
    again = stores.open(killed, **ENABLED)
    assert bodies(again, "%LMQ%a") == [b"2"]


def test_messages_of_a_deleted_topic_stay_in_their_light_queues(
    stores: Stores, tmp_path: Path
) -> None:
    store = stores.open(**ENABLED)
    dispatch(store, "%LMQ%a", b"1")
    store.visibility.delete_topics(["TopicA"]).remove()
    flush(store)
    killed = copy_killed(stores.root, tmp_path / "killed")
    shutil.rmtree(killed / "consumequeue")
    for opened in (store, stores.open(killed, **ENABLED)):
        assert bodies(opened, "%LMQ%a") == [b"1"]
        assert bodies(opened) == []


def test_without_the_settings_a_message_is_in_its_own_queue_only(stores: Stores) -> None:
    store = stores.open()
    put(store, b"1", properties=f"{_naming('%LMQ%a')}{NUMBERS}\x0177\x02")
    assert bodies(store, "%LMQ%a") == []
    # Recovery would believe it.
    assert numbers(store) == [None]


@pytest.mark.parametrize(
    "topic", ["%RETRY%group", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC"]
)
def test_messages_that_wait_are_in_no_light_queue_yet(stores: Stores, topic: str) -> None:
    store = stores.open(**ENABLED)
    dispatch(store, "%LMQ%a", b"1", topic)
    assert bodies(store, "%LMQ%a") == []
    (stored,) = messages(store, topic)
    assert NUMBERS not in stored.properties
    assert light_places(topic, {**stored.properties, NUMBERS: "0"}) == [] or topic.startswith("RMQ")


def test_a_disk_that_is_full_for_a_light_queue_holds_up_dispatch_and_loses_nothing(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(**ENABLED)
    real = disk.preallocate

    def preallocate(descriptor: int, size_bytes: int, offset: int = 0) -> None:
        if "%LMQ%b" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "no room")
        real(descriptor, size_bytes, offset)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "preallocate", preallocate)
        dispatch(store, "%LMQ%a,%LMQ%b", b"1")
        assert not store.is_writable
        with pytest.raises(StoreError):
            store.check_writable()
    while store.catch_up():
        pass
    assert store.is_writable
    assert [bodies(store, name) for name in ("TopicA", "%LMQ%a", "%LMQ%b")] == [[b"1"]] * 3
    dispatch(store, "%LMQ%b", b"2")
    assert numbers(store) == ["0,0", "1"]


def test_a_pass_that_is_not_written_gives_their_numbers_back(stores: Stores) -> None:
    store = stores.open(**ENABLED)
    dispatch(store, "%LMQ%a", b"1")
    store.staging.read_clock()
    naming = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    store.staging.stage(store.staging.tail("TopicA", 0), b"2", naming, 0, 0, 0, bytes(8))
    store.staging.give_back()
    assert store.staging.tail("%LMQ%a", 0).next_offset == 1


def test_a_promoted_store_knows_queues_that_others_wrote_and_its_own(stores: Stores) -> None:
    store = stores.open(**ENABLED)
    dispatch(store, "%LMQ%a", b"1")
    store.lead()
    dispatch(store, "%LMQ%b", b"2")
    known = store.staging.multi_dispatch
    assert known.unknown_among(["%LMQ%a", "%LMQ%b", "%LMQ%c"]) == {"%LMQ%c"}
    assert known.known_count == 2


def test_many_light_queues_take_little_room(stores: Stores) -> None:
    store = stores.open(**ENABLED, consume_queue_file_size_bytes=20 * 300_000)
    for number in range(50):
        names = ",".join(f"%LMQ%{number}-{other}" for other in range(4))
        put(store, b"x", "%LMQ%all", properties=_naming(names))
    files = list((stores.root / "consumequeue").glob("%LMQ%[0-9]*/0/*"))
    assert len(files) == 200
    assert {file.stat().st_size for file in files} == {6_000_000}
    assert sum(file.stat().st_blocks * 512 for file in files) <= 200 * 32_768


def test_nothing_is_read_ahead_of_the_end_of_a_queue(stores: Stores) -> None:
    """Where a disk reads 8 MiB ahead, each of ten thousand queues took 6 MB of memory."""
    store = stores.open(**ENABLED)
    dispatch(store, "%LMQ%a")
    mappings = Path("/proc/self/smaps").read_text().split("VmFlags:")
    flags = [
        after.splitlines()[0].split()
        for before, after in itertools.pairwise(mappings)
        if f"{stores.root}/consumequeue" in before
    ]
    assert len(flags) == 2
    assert all("rr" in found for found in flags)


def test_names_of_light_queues_that_come_to_nothing_are_forgotten(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open(**ENABLED)
    for number in range(10):
        with pytest.raises(RecordTooLargeError):
            put(store, bytes(5000), properties=_naming(f"%LMQ%{number},%LMQ%b{number}"))
        with pytest.raises(RecordTooLargeError):
            put(store, bytes(5000), f"%LMQ%{number}")
        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_fully", _refuse)
            with pytest.raises(StoreError):
                dispatch(store, f"%LMQ%{number}")
    assert list(store.staging.tails) == [("TopicA", 0)]
    dispatch(store, "%LMQ%1,%LMQ%b1", b"1")
    assert numbers(store) == ["0,0"]
    assert bodies(store, "%LMQ%b1") == [b"1"]


def _refuse(*_: object) -> None:
    raise OSError(errno.ENOSPC, "no room")


def test_a_light_queue_grows_beyond_what_was_reserved(stores: Stores) -> None:
    store = stores.open(**ENABLED, consume_queue_file_size_bytes=20 * 3000)
    expected = [b"%d" % number for number in range(4000)]
    for body in expected:
        put(store, body, "%LMQ%a")
    assert bodies(store, "%LMQ%a") == expected


@pytest.mark.parametrize(
    "name", ["plain", "%LMQ%", "%LMQ%a/b", "%LMQ%a\0", "%LMQ%a@b", "%LMQ%" + "a" * 251]
)
def test_what_is_no_light_queue(name: str) -> None:
    assert light_queue_error(name) is not None
    assert light_places("TopicA", {"INNER_MULTI_DISPATCH": name, NUMBERS: "0"}) == []


def test_numbers_that_do_not_fit_the_names_count_for_nothing() -> None:
    for names, given in (("%LMQ%a,%LMQ%b", "0"), ("%LMQ%a", "x"), ("%LMQ%a", "9" * 19)):
        assert light_places("TopicA", {"INNER_MULTI_DISPATCH": names, NUMBERS: given}) == []
