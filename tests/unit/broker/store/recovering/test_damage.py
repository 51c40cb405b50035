"""Recovery past a damaged head: what its body holds never becomes a message."""

import shutil
from pathlib import Path

import pytest

from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.log_scan import last_store_time_ms
from rockhopper.broker.store.message_store import MessageStore
from tests.support.open_stores import BORN_HOST, STORE_HOST, Stores, close, messages, put
from tests.support.records import encode_message
from tests.support.rot import overwrite

TOPIC = "TopicA"
# What is changed of the head: size (larger and smaller), magic, CRC, queue offset, place, sysFlag,
# size of the body.
FIELDS = {
    "size+": (1, b"\x01"),
    "size-": (3, b"\x60"),
    "magic": (5, b"\0"),
    "crc": (9, b"\x55"),
    "offset": (27, b"\x77"),
    "place": (35, b"\x77"),
    "flags": (39, b"\x30"),
    "body size": (86, b"\x01"),
    "head": (0, bytes(88)),
    "rubbish": (0, b"\xda\xa3\x20\xa7" * 22),
}


def image(place: int, queue_offset: int, topic: str = TOPIC) -> bytes:
    return encode_message(
        topic=topic,
        body=b"forged",
        queue_offset=queue_offset,
        commit_log_offset=place,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        store_time_ms=1_760_000_000_000,
    )


def put_images(store: MessageStore, topic: str = TOPIC, *claimed: int) -> int:
    """Store a message with images of messages in its body; return where it stands."""
    start = store.log.written_offset
    body = bytes(50)
    for queue_offset in claimed:
        body += image(start + 88 + len(body), queue_offset)
    put(store, body + bytes(50), topic)
    return start


def damage(root: Path, at: int, field: str) -> None:
    relative, data = FIELDS[field]
    overwrite((root / "commitlog" / f"{0:020d}"), at + relative, data)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("queues", ["there", "gone"])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_no_image_becomes_a_message(
    stores: Stores, tmp_path: Path, field: str, queues: str, stop: str
) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 16)
    put(store, b"in front")
    at = put_images(store, TOPIC, 0, 1, 2, 3, 4)
    put(store, b"behind")
    put(store, b"last")
    if stop == "clean":
        close(store)
    root = shutil.copytree(stores.root, tmp_path / "copy")
    damage(root, at, field)
    if queues == "gone":
        shutil.rmtree(root / "consumequeue")
    store = stores.open(root, commit_log_file_size_bytes=1 << 16)
    found = [(message.queue_offset, message.body) for message in messages(store)]
    expected = [(0, b"in front"), (2, b"behind"), (3, b"last")]
    if (0, b"in front") in found and len(found) == 4:
        found = [each for each in found if each[0] != 1]  # Its bytes were none that matter.
    assert found == expected
    assert store.reading.queue_range(TOPIC, 0)[1] == 4


@pytest.mark.parametrize("field", ["size+", "magic", "head"])
def test_an_image_in_the_torn_end_of_the_log_does_not_come_back(
    stores: Stores, tmp_path: Path, field: str
) -> None:
    store = stores.open(commit_log_file_size_bytes=1 << 16)
    put(store, b"in front")
    root = shutil.copytree(stores.root, tmp_path / "before")
    at = put_images(store, TOPIC, 1, 2)
    # The log's bytes are on disk, the queue's are not.
    shutil.copytree(stores.root / "commitlog", root / "commitlog", dirs_exist_ok=True)
    damage(root, at, field)
    store = stores.open(root, commit_log_file_size_bytes=1 << 16)
    assert [message.body for message in messages(store)] == [b"in front"]


def test_an_image_does_not_say_how_old_a_file_is(stores: Stores) -> None:
    store = stores.open(commit_log_file_size_bytes=4096)
    put_images(store, TOPIC, 9)
    store_time_ms = messages(store)[0].store_time_ms
    put(store, bytes(3700))
    file = MappedFile.open(stores.root / "commitlog" / f"{0:020d}")
    assert last_store_time_ms(file) == store_time_ms != 1_760_000_000_000
    file.close()
