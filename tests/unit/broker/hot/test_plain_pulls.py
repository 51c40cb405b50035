"""Which pulls compiled code answers, and what makes it look again.

That it answers as Python does is tests/property's.
"""

import asyncio
import errno
import json
from collections.abc import Callable, Iterator
from mmap import mmap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.broker.hot import plain_pulls, plain_sends
from rockhopper.broker.hot.hot_codec import pieces, templates
from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.pull import long_polling
from rockhopper.broker.kernel.pull.puller import Pull, Puller, PullOutcome
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.broker.kernel.tables.topics import TopicConfig
from rockhopper.broker.server.loop.latencies import PULLS, RequestLabels
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.store.files.errors import TooManyOpenFilesError
from rockhopper.broker.store.reading.get_result import GetResult, GetStatus
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder, encode_frame
from rockhopper.protocol.store.message_codec import decode_messages
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT
from rockhopper.protocol.subscription import Subscription
from tests.support.hang import HANG_S
from tests.support.hot_broker import PULL_FIELDS, HotBroker
from tests.support.piped_peer import PipedPeer
from tests.support.records import encode_message
from tests.support.served_broker import SETTINGS

pytestmark = pytest.mark.skipif(plain_pulls.take_pulls is None, reason="it is not compiled")


class Pulled:
    """A broker with some messages, of which a group is told that it may pull them."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str] | None = None
    ) -> None:
        self.broker = HotBroker(root, settings)
        self.taken = self.checks = self.calls = 0
        real = plain_pulls.take_pulls
        assert real is not None

        def counting(*arguments: object) -> plain_pulls.Taken:
            result = real(*arguments)
            self.taken += sum(served[0] for served in result[0])
            self.calls += 1
            return result

        check = Puller.plain_read

        def checking(puller: Puller, pull: Pull) -> object:
            self.checks += 1
            return check(puller, pull)

        monkeypatch.setattr(plain_pulls, "take_pulls", counting)
        monkeypatch.setattr(Puller, "plain_read", checking)
        self.join("*", 1)
        for number in range(5):
            self.broker.served.put("orders", b"%d" % number, properties="TAGS\x01A\x02")

    def join(self, expression: str, version: int) -> None:
        client = Client(self.broker.peer.connection, "me", 0, 453)
        told = {"orders": Subscription("orders", expression, version=version)}
        self.broker.served.kernel.consumers.register("group", client, ConsumeSettings(), told)

    def frame(self, **fields: object) -> Frame:
        ext = {name: value for name, value in (PULL_FIELDS | fields).items() if value is not None}
        parts = {"code": 11, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 1}
        return 0, json.dumps(parts, separators=(",", ":")).encode(), b""

    def serve(self, *frames: Frame) -> tuple[int, list[tuple[int, list[bytes]]]]:
        """How many of them compiled code took, and the code and the bodies of each answer."""
        before = self.taken
        self.broker.serve(list(frames))
        answers = [
            (command.code, [message.body for message in decode_messages(body)])
            for command, body in self.broker.answers()
        ]
        self.broker.peer.written.clear()
        return self.taken - before, answers

    def is_checked(self, **fields: object) -> bool:
        """Whether one pull is checked, because none of its kind was allowed."""
        before = self.checks
        self.pull(**fields)
        return self.checks > before

    def pull(self, **fields: object) -> tuple[int, int, list[bytes]]:
        """Whether compiled code took one pull, its code, and its bodies."""
        taken, ((code, bodies),) = self.serve(self.frame(**fields))
        return taken, code, bodies


@pytest.fixture
def pulled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pulled]:
    made = Pulled(tmp_path, monkeypatch)
    yield made
    made.broker.close()


ALL = [b"0", b"1", b"2", b"3", b"4"]


def test_headers_with_a_blank_after_each_separator_are_taken(pulled: Pulled) -> None:
    kind, header, body = pulled.frame()
    spread = kind, json.dumps(json.loads(header)).encode(), body
    pulled.serve(pulled.frame())
    assert pulled.serve(spread) == pulled.serve(pulled.frame())
    assert pulled.serve(spread)[0] == 1


def known_peers(pulled: Pulled, count: int, **fields: object) -> list[PipedPeer]:
    """Connect peers that have pulled before, so that compiled code knows their pulls."""
    server = Server("test", pulled.broker.hot, connections_max=count)
    peers = [PipedPeer(server, 41_000 + number) for number in range(count)]
    for peer in peers:
        client = Client(peer.connection, f"me{len(peers)}", 0, 453)
        told = {"orders": Subscription("orders", "*", version=1)}
        pulled.broker.served.kernel.consumers.register("group", client, ConsumeSettings(), told)
    for _ in range(2):
        frames = [pulled.frame(queueOffset="0", **fields)]
        for peer in peers:
            assert pulled.broker.hot.serve_frames(peer.connection, frames) == 1
            peer.writes.clear()
    pulled.calls = pulled.taken = 0
    return peers


def ask(peer: PipedPeer, *frames: Frame) -> None:
    peer.send(b"".join(encode_frame(*frame) for frame in frames))


def opaques(peer: PipedPeer) -> list[tuple[int, str]]:
    """The opaque and the next offset of each answer."""
    return [
        (answer.opaque, (answer.ext or {}).get("nextBeginOffset", "")) for answer in peer.answers()
    ]


async def all_served(peers: list[PipedPeer]) -> None:
    while any(peer.connection.is_scheduled for peer in peers):  # noqa: ASYNC110 - turns of its own
        await asyncio.sleep(0)


async def test_the_pulls_of_all_connections_are_one_call_and_one_answer_each(
    pulled: Pulled,
) -> None:
    peers = known_peers(pulled, 4)
    counted = sum(pulled.broker.served.kernel.request_times.combine(PULLS).counts)
    for number, peer in enumerate(peers):
        ask(peer, *(pulled.frame(queueOffset=str(n), maxMsgNums="1") for n in range(number + 1)))
    await asyncio.sleep(0)
    assert (pulled.calls, pulled.taken) == (1, 10)
    for number, peer in enumerate(peers):
        assert len(peer.writes) == 1
        assert opaques(peer) == [(1, str(n + 1)) for n in range(number + 1)]
    times = pulled.broker.served.kernel.request_times.combine(PULLS)
    assert sum(times.counts) - counted == 10


async def test_nothing_looks_for_sends_where_all_connections_pull(
    pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = known_peers(pulled, 2)
    calls: list[object] = []
    monkeypatch.setattr(plain_sends, "take_sends", lambda *given: calls.append(given))
    for peer in peers:
        ask(peer, pulled.frame(queueOffset="1"))
    await asyncio.sleep(0)
    assert [opaques(peer) for peer in peers] == [[(1, "5")]] * 2
    assert calls == []


async def test_what_follows_the_pulls_of_a_connection_keeps_its_place(pulled: Pulled) -> None:
    one, other = peers = known_peers(pulled, 2)
    send = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1"}
    sent = encode_command(Command(310, 2, ext=send | {"h": "0", "i": "UNIQ_KEY\x01AB\x02"}))
    pull = encode_frame(*pulled.frame(queueOffset="4"))
    one.send(pull + sent + pull)
    other.send(sent + pull)
    await all_served(peers)
    assert [answer.opaque for answer in one.answers()] == [1, 2, 1]
    assert [answer.opaque for answer in other.answers()] == [2, 1]


async def test_a_pull_of_another_kind_hinders_no_other_connection(pulled: Pulled) -> None:
    one, odd, other = peers = known_peers(pulled, 3)
    ask(one, pulled.frame(queueOffset="1"))
    ask(odd, pulled.frame(queueOffset="9"), pulled.frame(queueOffset="2"))
    ask(other, pulled.frame(queueOffset="3"))
    await all_served(peers)
    assert [opaques(peer) for peer in peers] == [[(1, "5")], [(1, "5"), (1, "5")], [(1, "5")]]


async def test_connections_that_close_or_do_not_read_are_left_out_of_the_pulls_of_a_turn(
    pulled: Pulled,
) -> None:
    closed, slow, _ = peers = known_peers(pulled, 3)
    for peer in peers:
        ask(peer, pulled.frame(queueOffset="1"))
    closed.connection.close()
    slow.connection.pause_writing()
    await asyncio.sleep(0)
    assert [len(peer.writes) for peer in peers] == [0, 0, 1]
    slow.connection.resume_writing()
    await all_served(peers)
    assert [len(peer.writes) for peer in peers] == [0, 1, 1]


@pytest.mark.parametrize("limit", ["PULLS_PER_CALL_MAX", "PASS_BYTES_MAX"])
async def test_more_pulls_than_one_call_takes_are_served_by_the_passes(
    pulled: Pulled, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    peers = known_peers(pulled, 5)
    monkeypatch.setattr(plain_pulls, limit, 3)
    for peer in peers:
        ask(peer, pulled.frame(queueOffset="1"), pulled.frame(queueOffset="2"))
    await all_served(peers)
    assert [opaques(peer) for peer in peers] == [[(1, "5"), (1, "5")]] * 5
    assert pulled.calls > 4


async def test_the_pulls_that_a_message_wakes_are_one_call(pulled: Pulled) -> None:
    *peers, gone = known_peers(pulled, 4, sysFlag="2", suspendTimeoutMillis="15000")
    for peer in (*peers, gone):
        frame = pulled.frame(queueOffset="5", sysFlag="2", suspendTimeoutMillis="15000")
        ask(peer, frame, frame)
    await asyncio.sleep(0)
    assert (pulled.calls, [peer.writes for peer in peers]) == (1, [[]] * 3)
    pulled.broker.served.put("orders", b"5")
    gone.connection.close()
    await asyncio.sleep(0)
    assert pulled.calls == 2
    assert [opaques(peer) for peer in peers] == [[(1, "6"), (1, "6")]] * 3
    assert gone.writes == []
    kind = RequestLabels("pull_message", "success", has_waited=True)
    rows = dict(pulled.broker.served.kernel.request_times.rows())
    assert sum(rows[kind].counts) == 6


async def test_woken_pulls_beyond_the_bytes_of_one_call_are_answered_too(
    pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = known_peers(pulled, 4, sysFlag="2", suspendTimeoutMillis="15000")
    for peer in peers:
        frame = pulled.frame(queueOffset="5", sysFlag="2", suspendTimeoutMillis="15000")
        ask(peer, frame, frame)
    await asyncio.sleep(0)
    monkeypatch.setattr(plain_pulls, "PASS_BYTES_MAX", 3)
    pulled.broker.served.put("orders", b"5")
    await asyncio.sleep(0)
    assert [opaques(peer) for peer in peers] == [[(1, "6"), (1, "6")]] * 4


def test_a_pull_is_taken_once_its_group_has_read_the_queue(pulled: Pulled) -> None:
    assert pulled.pull() == (0, 0, ALL)
    assert pulled.pull() == (1, 0, ALL)
    assert pulled.pull(queueOffset="3") == (1, 0, ALL[3:])
    assert pulled.pull(queueOffset="1", maxMsgNums="2") == (1, 0, ALL[1:3])
    assert pulled.pull(maxMsgNums="-1") == (1, 0, ALL[:1])
    taken, answers = pulled.serve(*(pulled.frame(queueOffset=str(n)) for n in range(5)))
    assert (taken, answers) == (5, [(0, ALL[n:]) for n in range(5)])


def test_what_stands_in_older_files_is_taken_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"mappedFileSizeConsumeQueue": "80", "mappedFileSizeCommitLog": "4096"}
    pulled = Pulled(tmp_path, monkeypatch, settings)
    try:
        for number in range(5, 30):
            pulled.broker.served.put("orders", b"%d" % number)
        bodies = [b"%d" % number for number in range(30)]
        pulled.pull()
        for start in (0, 1, 4, 12, 0, 20, 28):
            count = 3 if start % 4 < 2 else 1
            found = pulled.pull(queueOffset=str(start), maxMsgNums=str(count))
            assert found == (1, 0, bodies[start : start + count][: 30 - start])
        # From one file of the queue to the next.
        assert pulled.pull(queueOffset="2", maxMsgNums="4") == (0, 0, bodies[2:6])
        several = [pulled.frame(queueOffset=str(n), maxMsgNums="1") for n in (29, 3, 4, 5, 29)]
        taken, answers = pulled.serve(*several)
        assert (taken, answers) == (5, [(0, bodies[n : n + 1]) for n in (29, 3, 4, 5, 29)])
        queue = pulled.broker.served.store.reading.consume_queue("orders", 0)
        assert queue is not None
        queue.release_if_idle()
        queue.release_if_idle()
        assert pulled.pull(queueOffset="5", maxMsgNums="2") == (1, 0, bodies[5:7])
    finally:
        pulled.broker.close()


def test_what_cannot_be_mapped_is_left_to_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = Pulled(tmp_path, monkeypatch, {"mappedFileSizeConsumeQueue": "40"})

    log = pulled.broker.served.store.log
    mapped, calls = log.find_mapping, list[int]()

    def no_mapping(offset: int) -> tuple[mmap, int, int] | None:
        calls.append(offset)
        if len(calls) == 1:
            raise TooManyOpenFilesError(errno.EMFILE, "no descriptor is free")
        return mapped(offset)

    try:
        pulled.pull()
        monkeypatch.setattr(log, "find_mapping", no_mapping)
        assert pulled.pull(queueOffset="0", maxMsgNums="2") == (0, 0, ALL[:2])
        assert calls
    finally:
        pulled.broker.close()


async def answered(pulled: Pulled) -> list[tuple[int, list[bytes]]]:
    """What is answered later."""
    async with asyncio.timeout(HANG_S):
        await pulled.broker.peer.answered.wait()
    return pulled.serve()[1]


async def waiting(pulled: Pulled, *pulls: dict[str, object]) -> None:
    """Have pulls wait that compiled code knows, and took."""
    for fields in pulls:
        pulled.pull(**fields)
        taken, answers = pulled.serve(pulled.frame(**fields | AT_END))
        assert answers == []
        if taken == 0:
            pulled.broker.served.kernel.puller.look_at_resets(
                "orders", int(str(fields.get("queueId", 0)))
            )
            pulled.serve()
            assert pulled.serve(pulled.frame(**fields | AT_END)) == (1, [])
    pulled.broker.peer.answered.clear()


AT_END: dict[str, object] = {
    "queueOffset": "5",
    "sysFlag": "2",
    "suspendTimeoutMillis": "60000",
}
HERE: dict[str, object] = {"sysFlag": "2"}


def counted_pulls(pulled: Pulled, *, has_waited: bool) -> int:
    """Those that succeeded, as /metrics counts them."""
    rows = pulled.broker.served.kernel.request_times.rows()
    return sum(
        sum(times.counts)
        for kind, times in rows
        if (kind.request, kind.has_waited) == ("pull_message", has_waited)
    )


async def test_one_that_waits_is_answered_with_the_next_message(pulled: Pulled) -> None:
    await waiting(pulled, HERE)
    pulled.broker.served.put("orders", b"5", queue_id=1)
    pulled.broker.served.put("orders", b"5")
    before, at_once = pulled.taken, counted_pulls(pulled, has_waited=False)
    assert await answered(pulled) == [(0, [b"5"])]
    assert pulled.taken == before + 1
    assert counted_pulls(pulled, has_waited=True) == 1
    assert counted_pulls(pulled, has_waited=False) == at_once
    assert len(pulled.broker.served.kernel.long_polling) == 0


async def test_one_that_waited_long_enough_learns_that_there_is_nothing(pulled: Pulled) -> None:
    await waiting(pulled, HERE)
    pulled.broker.served.kernel.puller.look_at_resets("orders", 0)
    assert await answered(pulled) == [(ResponseCode.PULL_NOT_FOUND, [])]


async def test_one_that_waits_learns_of_a_reset(pulled: Pulled) -> None:
    await waiting(pulled, HERE)
    pulled.broker.served.tables.offsets.reset("orders", "group", 0, 2)
    pulled.broker.served.kernel.puller.look_at_resets("orders", 0)
    assert await answered(pulled) == [(ResponseCode.PULL_OFFSET_MOVED, [])]


async def test_all_that_wait_are_answered_at_the_end(pulled: Pulled) -> None:
    await waiting(pulled, HERE)
    pulled.broker.served.kernel.long_polling.stop()
    assert pulled.serve()[1] == [(ResponseCode.PULL_NOT_FOUND, [])]


async def test_one_that_waits_gets_nothing_of_what_was_closed_meanwhile(pulled: Pulled) -> None:
    await waiting(pulled, HERE)
    close_the_group(pulled)
    pulled.broker.served.put("orders", b"5")
    assert await answered(pulled) == [(ResponseCode.NO_PERMISSION, [])]


async def test_who_has_gone_is_not_answered(pulled: Pulled) -> None:
    await waiting(pulled, HERE)
    pulled.broker.served.put("orders", b"5")
    pulled.broker.peer.hang_up()
    await asyncio.sleep(0)
    assert pulled.serve()[1] == []


async def test_more_than_may_wait_go_the_general_way(
    pulled: Pulled, monkeypatch: pytest.MonkeyPatch
) -> None:
    await waiting(pulled, HERE)
    monkeypatch.setattr(long_polling, "PARKED_PER_CONNECTION_MAX", 1)
    taken, answers = pulled.serve(pulled.frame(**HERE | AT_END))
    assert (taken, answers) == (0, [(ResponseCode.SYSTEM_BUSY, [])])


def test_what_has_no_messages_is_left_to_python(pulled: Pulled) -> None:
    pulled.pull()
    assert pulled.pull(queueOffset="5") == (0, ResponseCode.PULL_NOT_FOUND, [])
    assert pulled.pull(queueOffset="-1") == (0, ResponseCode.PULL_OFFSET_MOVED, [])
    assert pulled.pull(queueOffset="99") == (0, ResponseCode.PULL_OFFSET_MOVED, [])
    assert pulled.pull(queueOffset=str(2**62)) == (0, ResponseCode.PULL_OFFSET_MOVED, [])
    taken, answers = pulled.serve(pulled.frame(), pulled.frame(queueOffset="5"), pulled.frame())
    assert (taken, [code for code, _ in answers]) == (2, [0, ResponseCode.PULL_NOT_FOUND, 0])


@pytest.mark.parametrize(
    "change",
    [
        {"consumerGroup": "other"},
        {"queueId": "1"},
        {"sysFlag": "2"},
        {"subVersion": "0"},
        {"subscription": ""},
        {"subscription": None},
        {"expressionType": None},
    ],
)
def test_a_pull_in_other_words_is_another_kind(pulled: Pulled, change: dict[str, object]) -> None:
    pulled.broker.served.put("orders", b"1/0", queue_id=1)
    pulled.pull()
    pulled.pull()
    assert not pulled.is_checked()
    assert pulled.is_checked(**change)


def close_the_topic(pulled: Pulled) -> None:
    closed = TopicConfig("orders", read_queue_nums=3, write_queue_nums=3, perm=2)
    pulled.broker.served.tables.topics.put(closed)


def close_the_group(pulled: Pulled) -> None:
    pulled.broker.served.tables.groups.put(SubscriptionGroup("group", consume_enable=False))


def forbid_the_group(pulled: Pulled) -> None:
    pulled.broker.served.tables.groups.forbid("group", "orders", readable=False)


def leave(pulled: Pulled) -> None:
    pulled.broker.served.kernel.consumers.unregister("group", pulled.broker.peer.connection)


def want_another_tag(pulled: Pulled) -> None:
    pulled.join("B", 1)


@pytest.mark.parametrize(
    ("happen", "code"),
    [
        (close_the_topic, ResponseCode.NO_PERMISSION),
        (close_the_group, ResponseCode.NO_PERMISSION),
        (forbid_the_group, ResponseCode.NO_PERMISSION),
        (leave, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (want_another_tag, ResponseCode.PULL_RETRY_IMMEDIATELY),
    ],
)
def test_what_changes_is_heeded_at_once(
    pulled: Pulled, happen: Callable[[Pulled], None], code: int
) -> None:
    pulled.pull()
    assert pulled.pull()[0] == 1
    happen(pulled)
    assert pulled.pull() == (0, code, [])


def test_a_heartbeat_that_says_nothing_new_changes_nothing(pulled: Pulled) -> None:
    pulled.pull()
    pulled.join("*", 1)
    assert pulled.pull()[0] == 1


def test_a_reset_is_told_once(pulled: Pulled) -> None:
    pulled.pull()
    pulled.broker.served.tables.offsets.reset("orders", "group", 0, 2)
    assert pulled.pull() == (0, ResponseCode.PULL_OFFSET_MOVED, [])
    assert pulled.pull(queueOffset="2") == (1, 0, ALL[2:])


def test_a_filter_takes_a_look_each_time(pulled: Pulled) -> None:
    pulled.join("A", 1)
    for _ in range(2):
        assert pulled.pull() == (0, 0, ALL)


def test_an_expression_is_known_once_it_found_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled = Pulled(tmp_path, monkeypatch, {"enablePropertyFilter": "true"})
    served = pulled.broker.served
    ask = {"sysFlag": "4", "expressionType": "SQL92", "subscription": "colour = 'red'"}
    try:
        for number, colour in enumerate(["red", "blue", "blue", "red", "blue"]):
            served.put(
                "orders", b"%s %d" % (colour.encode(), number), properties=f"colour\x01{colour}\x02"
            )
        assert pulled.pull(**ask) == (0, 0, [b"red 0", b"red 3"])
        tested = served.store.reading.reader.tested_count
        assert pulled.pull(**ask) == (1, 0, [b"red 0", b"red 3"])
        assert served.store.reading.reader.tested_count == tested + 10
        assert pulled.pull(**ask, queueOffset="6", maxMsgNums="1") == (1, 0, [b"red 3"])
        reads = served.stats.get_pull_traffic("orders", "group").queues[0]
        assert reads.next_offset == 9
        # Nothing was found: the offset that was reached is for Python to tell.
        assert pulled.pull(**ask, queueOffset="9")[:2] == (0, ResponseCode.PULL_RETRY_IMMEDIATELY)
        served.change_config(build_config(SETTINGS | {"enablePropertyFilter": "false"}))
        served.tables.topics.touch()
        assert pulled.pull(**ask)[:2] == (0, ResponseCode.SYSTEM_ERROR)
    finally:
        pulled.broker.close()


def test_a_retry_topic_takes_a_look_each_time(pulled: Pulled) -> None:
    pulled.broker.served.create_topic("%RETRY%group")
    pulled.broker.served.put("%RETRY%group", b"again")
    for _ in range(2):
        found = pulled.pull(topic="%RETRY%group", sysFlag="4")
        assert found == (0, 0, [b"again"])


def test_another_connection_is_not_known(pulled: Pulled) -> None:
    pulled.pull()
    pulled.pull()
    assert not pulled.is_checked()
    pulled.broker.peer.attributes.clear()
    assert pulled.is_checked()


def test_a_pull_of_older_messages_takes_nothing_from_what_a_group_has_received(
    pulled: Pulled,
) -> None:
    pulled.serve(pulled.frame(), pulled.frame())
    older = pulled.frame(queueOffset="0", maxMsgNums="1")
    taken, _ = pulled.serve(pulled.frame(queueOffset="2"), older)
    reads = pulled.broker.served.kernel.stats.furthest_offset("orders", "group", 0)
    assert (taken, reads) == (2, 5)


def test_commits_come_along_and_everything_is_counted(pulled: Pulled) -> None:
    served = pulled.broker.served
    pulled.pull()
    pulled.serve(
        pulled.frame(sysFlag="1", commitOffset="3"),
        pulled.frame(sysFlag="1", commitOffset="4", queueOffset="2", maxMsgNums="1"),
    )
    assert served.tables.offsets.get("orders", "group", 0) == 4
    pulled.serve(pulled.frame(sysFlag="1", commitOffset="-1"), pulled.frame(commitOffset="5"))
    assert served.tables.offsets.get("orders", "group", 0) == 4
    traffic = served.stats.get_pull_traffic("orders", "group")
    assert (traffic.calls, traffic.messages, served.stats.get_found) == (5, 21, 5)
    reads = traffic.queues[0]
    assert (reads.calls, reads.next_offset) == (5, 5)


def test_a_damaged_message_is_left_to_python(pulled: Pulled) -> None:
    pulled.pull()
    path = next((pulled.broker.root / "commitlog").iterdir())
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(data.index(b"\x06orders"))
        file.write(b"\x06ardors")
    taken, _, bodies = pulled.pull()
    assert (taken, bodies) == (0, ALL[1:])


def test_kinds_are_bounded(pulled: Pulled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_pulls, "KINDS_MAX", 2)
    for version in range(1, 6):
        pulled.pull(sysFlag="4", subVersion=str(version))
    assert not pulled.is_checked(sysFlag="4", subVersion="5")
    assert pulled.is_checked(sysFlag="4", subVersion="1")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda head: head.replace(b'"queueOffset":"0"', b'"queueOffset":"00"'),
        lambda head: head.replace(b'"queueOffset":"0"', b'"queueOffset":null'),
        lambda head: head.replace(b'"flag":0', b'"flag":2'),
        lambda head: head.replace(b'"opaque":1', b'"opaque":1.0'),
        lambda head: head.replace(b'"opaque":1', b'"opaque":  1'),
        lambda head: head.replace(b'"topic":"orders"', b'"topic":"orders","topic":"orders"'),
        lambda head: head.replace(b'"topic":"orders"', b'"rh":"1","topic":"orders"'),
        lambda head: head.replace(b"orders", b"\\u006frders"),
        lambda head: head.replace(b'"language":"JAVA"', b'"code":11'),
        lambda head: head + b" ",
        lambda head: head[:-1],
    ],
)
def test_whatever_is_a_little_unusual_is_left_to_python(
    pulled: Pulled, spoil: Callable[[bytes], bytes]
) -> None:
    pulled.pull()
    kind, head, body = pulled.frame()
    assert spoil(head) != head
    before = pulled.taken
    pulled.broker.hot.serve_frames(pulled.broker.peer.connection, [(kind, spoil(head), body)])
    assert pulled.taken == before


def test_an_answer_may_send_its_reader_to_another_replica() -> None:
    result = GetResult(GetStatus.FOUND, 9, 2, 30, b"records", 1)
    plain = b"".join(plain_pulls.pull_answer(PullOutcome.FOUND, result, 7))
    result.suggested_broker_id = 12
    (frame,) = FrameDecoder().feed(b"".join(plain_pulls.pull_answer(PullOutcome.FOUND, result, 7)))
    command = decode_header(*frame)
    assert (command.opaque, command.body) == (7, b"records")
    assert command.ext == {
        "suggestWhichBrokerId": "12",
        "nextBeginOffset": "9",
        "minOffset": "2",
        "maxOffset": "30",
    }
    assert b'"suggestWhichBrokerId":"0"' in plain


class OnePull:
    """A queue with one message, a pull of it, and what it takes to serve that."""

    def __init__(self) -> None:
        self.log = encode_message(
            topic="orders", body=b"hello", properties="TAGS\x01A\x02", store_host=bytes(8)
        )
        units = CONSUME_QUEUE_UNIT.pack(0, len(self.log), 65)
        self.queue = SimpleNamespace(
            topic_field=b"\6orders", min_offset=0, max_offset=1, mapping=units, mapping_start=0
        )
        parts = {"code": 11, "extFields": PULL_FIELDS, "flag": 0, "opaque": 1}
        self.frames = [(0, json.dumps(parts, separators=(",", ":")).encode(), b"")]
        self.readable: dict[bytes, Any] = {}

    def take(self, count_max: int = 32) -> Any:
        """Serve the pull."""
        made = templates("DefaultRegion", bytes(8), trace_on=True)
        answer = pieces(made.pulled.replace("%d", "0", 1).replace("%s", "FOUND"))
        limits = (count_max, 1 << 20, 1 << 20, 8), 1 << 20
        log = self.log, 0, len(self.log), 0
        assert plain_pulls.take_pulls is not None
        fronts = [(self.frames, 0, self.readable, True)]
        return plain_pulls.take_pulls(fronts, answer, *limits, *log)


def test_a_test_may_forget_that_the_queue_is_readable() -> None:
    one = OnePull()

    def judge(_key: bytes) -> bool:
        one.readable.clear()
        return True

    key = one.take()[0][0][2]
    for _ in range(3):
        one.readable[key] = one.queue, None, None, "orders", "group", [], ((b"TAGS",), {}, judge)
        ((count, answers, *_),), counted, _ = one.take()
        assert (count, answers.endswith(one.log), counted[0][0][3]) == (1, True, "orders")


def test_no_pull_is_served_without_room_for_a_message() -> None:
    with pytest.raises(OverflowError):
        OnePull().take(count_max=0)


@pytest.mark.parametrize(
    ("front", "error"),
    [
        (1, TypeError),
        (([], 0, {}), TypeError),
        (((), 0, {}, True), TypeError),
        (([], 0, [], True), TypeError),
        (([], -1, {}, True), OverflowError),
        (([], 1 << 70, {}, True), OverflowError),
        (([], "0", {}, True), TypeError),
        (([1], 0, {}, True), TypeError),
    ],
)
def test_what_is_no_front_is_refused(front: Any, error: type[Exception]) -> None:
    assert plain_pulls.take_pulls is not None
    one = OnePull()
    whole: Any = (one.frames, 0, {}, True)
    limits = tuple([b""] * 5), (32, 1 << 20, 1 << 20, 8), 1 << 20
    log = one.log, 0, len(one.log), 0
    taken = plain_pulls.take_pulls([whole], *limits, *log)
    assert taken[0][0][:2] == (0, None)
    with pytest.raises(error):
        plain_pulls.take_pulls([whole, front], *limits, *log)
