"""One store directory, written by Apache's broker and by ours in turn.

Both are read through the official Java client, so that what is compared never passes through code
of ours alone.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rockhopper.protocol import fastjson
from rockhopper.protocol.errors import MalformedBodyError
from tests.interop.bodies import body, hashes, sha1
from tests.interop.conftest import Launcher, Server
from tests.interop.java_client import ANSWER_TIMEOUT_S, JavaClient
from tests.interop.reading import read_topic
from tests.support import tool_stores

pytestmark = pytest.mark.interop

FILES = {
    "mappedFileSizeCommitLog": str(256 << 10),
    "mappedFileSizeConsumeQueue": str(20 * 100),
    "mapperFileSizeBatchConsumeQueue": str(46 * 10),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}
PLAIN, BATCHES = "Plain", "Batches"


class Contents:
    """What a store must hold by now, written and read through whoever serves it."""

    def __init__(self, java: JavaClient) -> None:
        self._java = java
        self._server: Server | None = None
        self._hashes: dict[str, list[str]] = defaultdict(list)
        self._keys: dict[tuple[str, str], str] = {}
        self._sessions = 0

    def served_by(self, server: Server) -> None:
        """Go on with another broker on the same directory."""
        self._server = server

    def call(self, op: str, topic: str, **options: object) -> Any:
        """Run an operation of the Java client against the broker that serves the store now."""
        assert self._server is not None
        return self._java.call(op, nameserver=self._server.nameserver, topic=topic, **options)

    def create_topics(self) -> None:
        """Create an ordinary topic and one whose batches stay whole."""
        assert self._server is not None
        broker = self._server.broker_address
        batch_type = {"queue.type": "BatchCQ"}
        self.call("createTopic", PLAIN, broker=broker, queues=3)
        self.call("createTopic", BATCHES, broker=broker, queues=2, attributes=batch_type)

    def send_more(self) -> None:
        """Send singles, batches and compressed bodies, enough to roll every kind of file."""
        prefix = f"s{self._sessions}"
        self._sessions += 1
        self._send(PLAIN, f"{prefix}-single", 600, bodySize=300, tags=["red", "green"], threads=2)
        self._send(PLAIN, f"{prefix}-batch", 24, mode="batch", batchSize=8)
        self._send(PLAIN, f"{prefix}-big", 3, bodySize=100_000)
        self._send(BATCHES, f"{prefix}-inner", 96, mode="batch", batchSize=4)
        self._send(BATCHES, f"{prefix}-single", 3)

    def _send(self, topic: str, prefix: str, count: int, **options: object) -> None:
        receipts = self.call("send", topic, prefix=prefix, count=count, keys=True, **options)
        assert {receipt[0] for receipt in receipts} == {"SEND_OK"}
        size_bytes = int(str(options.get("bodySize", 0)))
        self._hashes[topic] += hashes(prefix, range(count), size_bytes)
        if topic == PLAIN:
            for index in (0, count - 1):
                self._keys[topic, f"{prefix}-{index}"] = sha1(body(prefix, index, size_bytes))

    def check(self) -> None:
        """Read everything: each message once, no gap in any queue, each key found."""
        assert self._server is not None
        for topic, expected in self._hashes.items():
            reading = read_topic(self._java, self._server.nameserver, topic)
            reading.assert_whole()
            assert reading.hashes == sorted(expected), topic
        red = read_topic(self._java, self._server.nameserver, PLAIN, expression="red")
        assert {message["tags"] for message in red.messages} == {"red"}
        assert len(red.messages) == 300 * self._sessions
        for (topic, key), expected_hash in self._keys.items():
            found = [message["sha1"] for message in self.call("query", topic, key=key)]
            assert found == [expected_hash], key

    def consume_new(self, count: int) -> list[str]:
        """Let one group consume *count* messages it has not seen; return all it got."""
        answer = self.call("consume", PLAIN, group="steady", count=count, timeoutMs=300_000)
        return sorted(message["sha1"] for message in answer["messages"])


def _stop(server: Server) -> None:
    server.stop()


def _kill(server: Server) -> None:
    server.kill()


def _serve(launch: Launcher, name: str, store: Path, settings: Mapping[str, str]) -> Server:
    settings = {**settings, "storePathRootDir": str(store)}
    return launch.apache(settings) if name == "apache" else launch.rockhopper(settings)


def _back_and_forth(
    java: JavaClient,
    launch: Launcher,
    store: Path,
    order: list[str],
    end: Callable[[Server], None],
    settings: Mapping[str, str],
) -> None:
    contents = Contents(java)
    for number, name in enumerate(order):
        server = _serve(launch, name, store, settings)
        contents.served_by(server)
        if number == 0:
            contents.create_topics()
        else:
            contents.check()
        contents.send_more()
        contents.check()
        if end is _stop:
            prefix = f"s{number}"
            expected = hashes(f"{prefix}-single", range(600), 300)
            expected += hashes(f"{prefix}-batch", range(24))
            expected += hashes(f"{prefix}-big", range(3), 100_000)
            assert contents.consume_new(627) == sorted(expected)
        if number < len(order) - 1:
            end(server)


APACHE_FIRST = ["apache", "rockhopper", "apache"]
OURS_FIRST = ["rockhopper", "apache", "rockhopper"]
CLEAN = pytest.param(_stop, id="clean-stop", marks=pytest.mark.long)
KILLED = pytest.param(_kill, id="kill-9")


@pytest.mark.parametrize("end", [CLEAN, KILLED])
@pytest.mark.parametrize("order", [APACHE_FIRST, OURS_FIRST], ids="-".join)
def test_a_store_goes_back_and_forth(
    java: JavaClient,
    launch: Launcher,
    tmp_path: Path,
    order: list[str],
    end: Callable[[Server], None],
) -> None:
    _back_and_forth(java, launch, tmp_path / "store", order, end, FILES)


@pytest.mark.long
def test_a_store_with_files_of_default_size_goes_back_and_forth(
    java: JavaClient, launch: Launcher, tmp_path: Path
) -> None:
    _back_and_forth(java, launch, tmp_path / "store", APACHE_FIRST, _kill, {})


@pytest.mark.long
def test_extended_consume_queues_are_read_and_continued(
    java: JavaClient, launch: Launcher, tmp_path: Path
) -> None:
    settings = {**FILES, "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "4096"}
    _back_and_forth(java, launch, tmp_path / "store", APACHE_FIRST, _stop, settings)
    assert (tmp_path / "store" / "consumequeue_ext" / PLAIN / "0").is_dir()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("order", [APACHE_FIRST[:2], OURS_FIRST[:2]], ids="-".join)
def test_a_kill_amid_sends_loses_nothing_that_was_answered(
    java: JavaClient, launch: Launcher, tmp_path: Path, order: list[str], flush: str
) -> None:
    settings = {**FILES, "flushDiskType": flush}
    first = _serve(launch, order[0], tmp_path / "store", settings)
    address = {"nameserver": first.nameserver, "topic": PLAIN}
    java.call("createTopic", **address, broker=first.broker_address, queues=3)
    java.call("send", **address, count=500, prefix="before", threads=4)
    sending = java.begin(
        "send", **address, count=1_000_000, prefix="amid", threads=4, untilFailure=True, keys=True
    )
    reached = 0
    while reached < 2_000:
        offsets = java.call("offsets", **address, queues=3, timeMs=0)
        reached = sum(high for _, _, high, *_ in offsets)
    first.kill()
    answered = [receipt[1] for receipt in sending.result(60)]

    second = _serve(launch, order[1], tmp_path / "store", settings)
    address["nameserver"] = second.nameserver
    java.call("send", **address, count=10, prefix="after")

    reading = read_topic(java, **address)
    reading.assert_whole()
    assert set(answered) <= set(reading.ids)
    # At most the one message that each thread had under way was stored without an answer.
    assert 510 + len(answered) <= len(reading.messages) <= 514 + len(answered)
    assert set(hashes("before", range(500)) + hashes("after", range(10))) <= set(reading.hashes)


@pytest.mark.parametrize("order", [APACHE_FIRST[:2], OURS_FIRST[:2]], ids="-".join)
def test_a_delayed_message_waits_in_the_store_for_whoever_opens_it(
    java: JavaClient, launch: Launcher, tmp_path: Path, order: list[str]
) -> None:
    store, first_come = tmp_path / "store", hashes("soon", range(3))
    first = _serve(launch, order[0], store, FILES)
    address = {"nameserver": first.nameserver, "topic": "Later"}
    java.call("send", **address, count=3, prefix="soon", delayLevel=1, keys=True)
    consumed = java.call("consume", **address, group="patient", count=3)
    assert sorted(m["sha1"] for m in consumed["messages"]) == first_come
    java.call("send", **address, count=5, prefix="later", delayLevel=3, tags=["red"], keys=True)
    first.stop()

    second = _serve(launch, order[1], store, FILES)
    address = {"nameserver": second.nameserver, "topic": "Later"}
    consumed = java.call("consume", **address, group="patient", count=5, timeoutMs=300_000)

    assert sorted(m["sha1"] for m in consumed["messages"]) == hashes("later", range(5))
    assert {m["tags"] for m in consumed["messages"]} == {"red"}
    assert read_topic(java, **address).hashes == sorted(first_come + hashes("later", range(5)))


def _ends(java: JavaClient, nameserver: str, topic: str) -> list[int]:
    offsets = java.call("offsets", nameserver=nameserver, topic=topic, queues=3, timeMs=0)
    return [high for _, _, high, *_ in offsets]


def _until_offsets_are_written(store: Path, topic: str, group: str, total: int) -> None:
    """Apache's broker writes them on a timer, and keeps no journal between."""
    written, table = 0, store / "config" / "consumerOffset.json"
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    while written < total:
        assert time.monotonic() < deadline_s, f"{table} holds {written} of {total}"
        time.sleep(0.1)
        # The table is taken away for a moment while a new one is put in its place.
        with contextlib.suppress(FileNotFoundError, MalformedBodyError):
            tables = fastjson.loads(table.read_bytes())["offsetTable"]
            written = sum(tables.get(f"{topic}@{group}", {}).values())


@pytest.mark.parametrize("name", ["rockhopper", "apache"])
def test_apache_serves_what_was_restored_from_a_backup_of_a_live_store(
    java: JavaClient, launch: Launcher, tmp_path: Path, name: str
) -> None:
    contents = Contents(java)
    served = _serve(launch, name, tmp_path / "store", FILES)
    contents.served_by(served)
    contents.create_topics()
    contents.send_more()
    contents.consume_new(627)
    if name == "apache":
        _until_offsets_are_written(served.store, PLAIN, "steady", 627)
    address = {"nameserver": served.nameserver, "topic": "Amid"}
    java.call("createTopic", **address, broker=served.broker_address, queues=3)
    sending = java.begin(
        "send", **address, count=1_000_000, prefix="amid", threads=4, untilFailure=True
    )
    backup, restored, sizes = (tmp_path / name for name in ("backup", "restored", "sizes.conf"))
    sizes.write_text("".join(f"{key}={value}\n" for key, value in FILES.items()))
    ends: list[int] = []
    for least in (1_000, 3_000):
        while sum(ends) < least:
            ends = _ends(java, **address)
        assert tool_stores.run("backup", served.store, backup, "-c", sizes, "--write").code == 0
    served.kill()
    sending.result(60)
    ended = tool_stores.run("restore", backup, restored, "-c", sizes, "--write")
    assert ended.code == 0, ended.err

    again = launch.apache({**FILES, "storePathRootDir": str(restored)})
    contents.served_by(again)
    contents.check()
    amid = read_topic(java, again.nameserver, "Amid")
    amid.assert_whole()
    come_back = _ends(java, again.nameserver, "Amid")
    assert all(end <= now for end, now in zip(ends, come_back, strict=True))
    assert len(amid.messages) == sum(come_back)
    contents.send_more()
    contents.check()
    expected = hashes("s1-single", range(600), 300) + hashes("s1-batch", range(24))
    assert contents.consume_new(627) == sorted(expected + hashes("s1-big", range(3), 100_000))
