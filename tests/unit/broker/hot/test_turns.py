"""The sends of one turn: written together, and each connection's own in order and answer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.hot import plain_pulls, plain_sends
from rockhopper.broker.hot.hot_pass import GENERAL_SENDS_MAX
from rockhopper.broker.hot.plain_sends import SENDS_PER_CALL_MAX, Taken
from rockhopper.broker.server.loop.fair_scheduler import GROUP_MAX
from rockhopper.broker.server.remoting.dispatcher import Dispatcher
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.direct import pull_fields
from tests.support.hot_broker import HotBroker, HotPeer, fail_writes
from tests.support.open_stores import flush
from tests.support.peers import Clock
from tests.support.piped_peer import PipedPeer

compiled_only = pytest.mark.skipif(plain_sends.take_sends is None, reason="it is not compiled")
SYNC = {"flushDiskType": "SYNC_FLUSH"}
SEND = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
MSGPACK = 2
UNWAITING = "UNIQ_KEY\x01AB\x02WAIT\x01false\x02"


def make_broker(root: Path, settings: dict[str, str] | None = None) -> HotBroker:
    """Return a broker that knows the topic, with a first message in its first queue."""
    made = HotBroker(root, settings)
    made.serve(frames(send(0, b"first")))
    flush(made.served.store)
    return made


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[HotBroker]:
    made = make_broker(tmp_path)
    yield made
    made.close()


@pytest.fixture
async def sync_broker(tmp_path: Path) -> AsyncIterator[HotBroker]:
    made = make_broker(tmp_path, SYNC)
    yield made
    made.close()


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the writes to the log."""
    sizes: list[int] = []
    real = MappedFile.pwrite

    def pwrite(file: MappedFile, position: int, data: bytes) -> None:
        sizes.append(len(data))
        real(file, position, data)

    monkeypatch.setattr(MappedFile, "pwrite", pwrite)
    return sizes


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Taken]:
    """The results of take_sends."""
    made: list[Taken] = []
    take = plain_sends.take_sends

    def noted(*arguments: Any) -> tuple[Any, ...]:
        assert take is not None
        made.append(Taken(*take(*arguments)))
        return made[-1]

    monkeypatch.setattr(plain_sends, "take_sends", noted)
    return made


def send(
    opaque: int,
    body: bytes = b"hello",
    *,
    properties: str = "UNIQ_KEY\x01AB\x02",
    kind: int = 0,
    flag: int = 0,
    **ext: str,
) -> bytes:
    fields = SEND | {"i": properties} | ext
    return encode_command(Command(310, opaque, flag, ext=fields, body=body, serialize_type=kind))


def frames(*requests: bytes) -> list[Frame]:
    return FrameDecoder().feed(b"".join(requests))


def connect(broker: HotBroker, count: int) -> list[PipedPeer]:
    """Connect peers with the ports 40,001 and so on."""
    server = Server("test", broker.hot, connections_max=100)
    return [PipedPeer(server, 40_001 + number) for number in range(count)]


async def all_served(peers: list[PipedPeer]) -> None:
    """Let turns pass until everything is served; how many depends on the time that each takes."""
    while any(peer.connection.is_scheduled for peer in peers):  # noqa: ASYNC110 - turns of its own
        await asyncio.sleep(0)


def stored(broker: HotBroker, topic: str = "orders") -> list[StoredMessage]:
    """Return the messages of a topic's first queue behind the very first."""
    return decode_messages(broker.served.store.reading.get_message(topic, 0, 1, 1000).body)


def codes(peer: PipedPeer) -> list[tuple[int, int]]:
    return [(answer.opaque, answer.code) for answer in peer.answers()]


@compiled_only
async def test_the_sends_of_a_turn_are_one_write_and_each_connection_gets_its_answers(
    broker: HotBroker, writes: list[int], calls: list[Taken]
) -> None:
    peers = connect(broker, 5)
    for number, peer in enumerate(peers):
        peer.send(b"".join(send(n, b"%d/%d" % (number, n)) for n in range(number + 1)))
    assert writes == []
    await asyncio.sleep(0)
    assert len(writes) == len(calls) == 1
    assert calls[0].counts == [1, 2, 3, 4, 5]
    messages = {message.body: message for message in stored(broker)}
    assert len(messages) == 15
    for number, peer in enumerate(peers):
        assert len(peer.writes) == 1
        answers = peer.answers()
        assert [(answer.opaque, answer.code) for answer in answers] == [
            (n, 0) for n in range(number + 1)
        ]
        for n, answer in enumerate(answers):
            message = messages[b"%d/%d" % (number, n)]
            assert message.born_port == 40_001 + number
            assert answer.ext is not None
            assert answer.ext["queueOffset"] == str(message.queue_offset)
            assert int(answer.ext["msgId"][16:], 16) == message.commit_log_offset


def pass_a_millisecond(clock: Clock) -> int:
    """Read a clock that goes on at each reading."""
    clock.advance(1)
    return clock.now_ms


@pytest.mark.parametrize("topic", ["new", "orders"])
@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01AB\x02", ""], ids=["plain", "general"])
async def test_the_messages_of_a_turn_have_the_time_that_the_index_has(
    broker: HotBroker,
    writes: list[int],
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    properties: str,
) -> None:
    broker.served.create_topic("new")
    monkeypatch.setattr(Clock, "__call__", pass_a_millisecond)
    peers = connect(broker, 3)
    for peer in peers:
        peer.send(b"".join(send(n, properties=properties, b=topic) for n in range(2)))
    await asyncio.sleep(0)
    assert len(writes) == 1
    messages = broker.served.store.reading.get_message(topic, 0, 0, 1000).body
    times = {message.store_time_ms for message in decode_messages(messages)[-6:]}
    assert times == {broker.served.store.dispatch.store_time_ms}


async def test_a_connection_that_was_closed_before_its_turn_gets_no_answer(
    broker: HotBroker,
) -> None:
    closed, other = peers = connect(broker, 2)
    closed.send(send(1, b"a"))
    other.send(send(2, b"b"))
    closed.connection.close()
    await all_served(peers)
    assert codes(closed) == []
    assert codes(other) == [(2, 0)]
    assert [message.body for message in stored(broker)][-1:] == [b"b"]


async def test_a_connection_that_is_lost_before_the_flush_gets_no_answer_and_its_message_is_stored(
    sync_broker: HotBroker,
) -> None:
    gone, other = peers = connect(sync_broker, 2)
    gone.send(send(1, b"a"))
    other.send(send(2, b"b"))
    await all_served(peers)
    gone.closing = True
    gone.connection.connection_lost(None)
    flush(sync_broker.served.store)
    assert codes(gone) == []
    assert codes(other) == [(2, 0)]
    assert [message.body for message in stored(sync_broker)] == [b"a", b"b"]


UNUSUAL: dict[str, Callable[[int, bytes], bytes]] = {
    "msgpack": lambda opaque, body: send(opaque, body, kind=MSGPACK),
    "a special property": lambda opaque, body: send(
        opaque, body, properties="UNIQ_KEY\x01AB\x02POP_CK\x01x\x02"
    ),
    "no key": lambda opaque, body: send(opaque, body, properties=""),
    "the first of its queue": lambda opaque, body: send(opaque, body, e="1"),
}


@compiled_only
@pytest.mark.parametrize("unusual", UNUSUAL.values(), ids=UNUSUAL.keys())
async def test_an_unusual_send_keeps_its_place_and_does_not_hinder_other_connections(
    broker: HotBroker, calls: list[Taken], unusual: Callable[[int, bytes], bytes]
) -> None:
    one, odd, other = peers = connect(broker, 3)
    one.send(send(1, b"one 1") + send(2, b"one 2"))
    odd.send(send(1, b"odd 1") + unusual(2, b"odd 2") + send(3, b"odd 3") + send(4, b"odd 4"))
    other.send(send(1, b"other 1") + send(2, b"other 2"))
    await all_served(peers)
    assert calls[0].counts == [2, 1, 2]
    assert [codes(peer) for peer in peers] == [
        [(n, 0) for n in (1, 2)],
        [(n, 0) for n in (1, 2, 3, 4)],
        [(n, 0) for n in (1, 2)],
    ]
    in_log = decode_messages(broker.log_bytes())[1:]
    assert [message.body for message in in_log] == [
        *(b"one 1", b"one 2", b"odd 1", b"other 1", b"other 2"),
        *(b"odd 2", b"odd 3", b"odd 4"),
    ]


async def test_a_refused_send_is_the_only_one_that_is_refused(broker: HotBroker) -> None:
    one, bad, other = peers = connect(broker, 3)
    one.send(send(1))
    bad.send(send(1, b="readonly") + send(2) + send(3, e="77") + send(4))
    other.send(send(1))
    await all_served(peers)
    assert [code for _, code in codes(bad)] == [
        ResponseCode.NO_PERMISSION,
        ResponseCode.SUCCESS,
        ResponseCode.INVALID_PARAMETER,
        ResponseCode.SUCCESS,
    ]
    assert codes(one) == codes(other) == [(1, 0)]
    assert len(stored(broker)) == 4


async def test_a_malformed_header_closes_its_connection_alone(broker: HotBroker) -> None:
    bad, other = peers = connect(broker, 2)
    broken = send(2).replace(b'{"code":310', b'{"code":xxx')
    bad.send(send(1, b"a") + broken + send(3, b"never"))
    other.send(send(1, b"b"))
    await all_served(peers)
    assert bad.closing
    assert codes(bad) == codes(other) == [(1, 0)]
    assert [message.body for message in stored(broker)] == [b"a", b"b"]


@compiled_only
async def test_one_flush_releases_the_answers_of_all_connections(
    sync_broker: HotBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = connect(sync_broker, 4)
    safe_point = sync_broker.served.store.safe_point
    ends: list[int] = []
    when = safe_point.when

    def noted(end: int, release: Any, answer_count: int) -> None:
        ends.append(end)
        when(end, release, answer_count)

    monkeypatch.setattr(safe_point, "when", noted)
    for peer in peers:
        peer.send(send(1) + send(2, properties=UNWAITING) + send(3))
    await all_served(peers)
    assert len(ends) == 1
    assert [codes(peer) for peer in peers] == [[(2, 0)]] * 4
    flush(sync_broker.served.store)
    assert [codes(peer) for peer in peers] == [[(1, 0), (3, 0)]] * 4
    assert len(stored(sync_broker)) == 12


@pytest.mark.parametrize("settings", [{}, SYNC])
async def test_what_cannot_be_written_is_refused_on_each_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    broker = make_broker(tmp_path, settings)
    try:
        peers = connect(broker, 3)
        with monkeypatch.context() as broken:
            fail_writes(broken, 0)
            for number, peer in enumerate(peers):
                peer.send(b"".join(send(10 * number + n) for n in range(number + 1)))
            await all_served(peers)
        refused = ResponseCode.SYSTEM_ERROR
        for number, peer in enumerate(peers):
            assert codes(peer) == [(10 * number + n, refused) for n in range(number + 1)]
        assert stored(broker) == []
        peers[1].send(send(77, b"after"))
        await all_served(peers)
        flush(broker.served.store)
        (answer,) = peers[1].answers()
        assert (answer.opaque, answer.code, (answer.ext or {})["queueOffset"]) == (77, 0, "1")
        assert peers[0].writes == peers[2].writes == []
        assert [message.body for message in stored(broker)] == [b"after"]
    finally:
        broker.close()


def room_of(broker: HotBroker) -> int:
    """Return the bytes that are free in the newest file of the log."""
    at, end, _ = broker.served.store.staging.place()
    return end - at


async def test_a_turn_that_is_written_in_part_refuses_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(tmp_path, {"mappedFileSizeCommitLog": "4096"})
    try:
        before = room_of(broker)
        peers = connect(broker, 5)
        with monkeypatch.context() as broken:
            for number, peer in enumerate(peers):
                peer.send(send(number, bytes(1000)))
            # The file that is full is written, and closed; the next one fails.
            fail_writes(broken, 2)
            await all_served(peers)
        answers = [code for peer in peers for _, code in codes(peer)]
        count = before // 1100
        assert answers == [0] * count + [ResponseCode.SYSTEM_ERROR] * (len(peers) - count)
        assert len(stored(broker)) == count
    finally:
        broker.close()


@compiled_only
@pytest.mark.parametrize("has_time", [True, False])
def test_more_sends_than_one_call_takes_are_served_by_several(
    broker: HotBroker, calls: list[Taken], writes: list[int], has_time: bool
) -> None:
    peers = [HotPeer(41_000 + number) for number in range(5)]
    sizes = [200, 0, 184, 300, 200]
    for number, (peer, size) in enumerate(zip(peers, sizes, strict=True)):
        peer.backlog = frames(*(send(n, b"%d/%d" % (number, n)) for n in range(size)))
    broker.hot.serve_together([peer.connection for peer in peers], lambda: has_time)
    taken = [taken.counts for taken in calls]
    assert sum(taken[0]) == SENDS_PER_CALL_MAX
    assert len(writes) == len(taken)
    left = [len(peer.backlog) for peer in peers]
    if has_time:
        assert taken == [[200, 0, 184], [300, 84], [116]]
        assert left == [0] * 5
    else:
        assert taken == [[200, 0, 184]]
        assert left == [0, 0, 0, 300, 200]
    for number, peer in enumerate(peers):
        served = range(sizes[number] - left[number])
        assert [answer.opaque for answer, _ in peer.answers()] == list(served)
        assert [body for _, _, body in peer.backlog][:1] == (
            [b"%d/0" % number] * bool(left[number])
        )
        own = b"%d/" % number
        bodies = [message.body for message in decode_messages(broker.log_bytes())]
        assert [body for body in bodies if body.startswith(own)] == [
            b"%d/%d" % (number, n) for n in served
        ]


@compiled_only
async def test_the_work_of_a_turn_grows_with_the_number_of_sends_alone(
    broker: HotBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fronts: list[int] = []
    take = plain_sends.take_sends

    def noted(*arguments: Any) -> tuple[Any, ...]:
        assert take is not None
        fronts.append(len(arguments[0]))
        return take(*arguments)

    monkeypatch.setattr(plain_sends, "take_sends", noted)
    server = Server("test", broker.hot, connections_max=4 * GROUP_MAX)
    peers = [PipedPeer(server, number) for number in range(4 * GROUP_MAX)]
    for peer in peers:
        peer.send(send(1))
    await all_served(peers)
    assert sum(fronts) == len(peers)
    assert [codes(peer) for peer in peers] == [[(1, 0)]] * len(peers)


@compiled_only
def test_the_unknown_topics_of_all_connections_are_admitted_at_once(
    broker: HotBroker, calls: list[Taken], writes: list[int]
) -> None:
    names = [f"topic{number}" for number in range(4)]
    for name in names:
        broker.served.create_topic(name)
        broker.served.put(name, b"first")
    writes.clear()
    peers = [HotPeer(41_000 + number) for number in range(6)]
    for peer, name in zip(peers, [*names, "readonly", names[0]], strict=True):
        peer.backlog = frames(send(1, b=name), send(2, b=name))
    broker.serve_turn(*peers)
    first, second = calls[:2]
    assert [name for _, name in first.unknown] == [*names, "readonly", names[0]]
    assert (first.sends, [name for _, name in second.unknown]) == (0, ["readonly"])
    assert second.counts == [2, 2, 2, 2, 0, 2]
    assert len(writes) == 1
    no = ResponseCode.NO_PERMISSION
    for number, peer in enumerate(peers):
        code = no if number == 4 else 0
        assert [(one.opaque, one.code) for one, _ in peer.answers()] == [(1, code), (2, code)]
    assert [len(stored(broker, name)) for name in names] == [4, 2, 2, 2]


def test_a_flood_of_general_sends_leaves_room_for_a_send_of_another_connection(
    broker: HotBroker,
) -> None:
    flood, other = HotPeer(41_001), HotPeer(41_002)
    flood.backlog = frames(*[send(n, e="-1") for n in range(2 * GENERAL_SENDS_MAX)])
    other.backlog = frames(send(1, e="-1"))
    broker.hot.serve_together([flood.connection, other.connection], lambda: False)
    assert [one.opaque for one, _ in other.answers()] == [1]
    assert 0 < len(flood.answers()) < GENERAL_SENDS_MAX


async def test_without_a_compiler_the_general_path_serves_everything(
    broker: HotBroker, writes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatched: list[int] = []
    dispatch, dispatch_together = Dispatcher.dispatch, Dispatcher.dispatch_together

    def noted(self: Dispatcher, connection: Any, command: Command) -> bytes:
        dispatched.append(command.code)
        return dispatch(self, connection, command)

    def noted_together(self: Dispatcher, together: Any, asked: Any) -> list[bytes]:
        dispatched.extend(command.code for _, command in asked)
        return dispatch_together(self, together, asked)

    monkeypatch.setattr(Dispatcher, "dispatch_together", noted_together)
    monkeypatch.setattr(plain_sends, "take_sends", None)
    monkeypatch.setattr(plain_sends, "count_up", None)
    monkeypatch.setattr(plain_pulls, "take_pulls", None)
    monkeypatch.setattr(Dispatcher, "dispatch", noted)
    peers = connect(broker, 3)
    pull = encode_command(Command(11, 3, ext=pull_fields("orders", 1)))
    for number, peer in enumerate(peers):
        peer.send(send(1, b"%d/1" % number) + send(2, b"%d/2" % number) + pull)
    await all_served(peers)
    assert sorted(dispatched) == [11] * 3 + [310] * 6
    assert len(writes) == 1
    for number, peer in enumerate(peers):
        *sent, pulled = peer.answers()
        assert [(answer.opaque, answer.code) for answer in sent] == [(1, 0), (2, 0)]
        bodies = [message.body for message in decode_messages(pulled.body)]
        assert {b"%d/1" % number, b"%d/2" % number} <= set(bodies)
    assert len(stored(broker)) == 6
