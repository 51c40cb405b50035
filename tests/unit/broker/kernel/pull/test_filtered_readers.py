"""However many readers filter, a turn of the loop evaluates few expressions, and each has turns."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from rockhopper.broker.store.reading.property_stage import BUDGET_S
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, FrameDecoder
from rockhopper.protocol.sql92 import sql_filter
from rockhopper.protocol.sql92.parser import Parser
from rockhopper.protocol.sql92.sql_filter import SqlFilter
from tests.support.direct import pull_fields
from tests.support.features import needs
from tests.support.held_clock import HeldClock
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker

READERS = 20
MESSAGES = 10
COST_S = 0.005
# As many as the budget has room for, and the one that it ends in.
PER_TURN = int(BUDGET_S / COST_S) + 1


class Costly:
    """Each evaluation takes COST_S, of a time that goes on by 1 ms in each turn of the loop."""

    def __init__(self, broker: ServedBroker, patch: pytest.MonkeyPatch) -> None:
        self._held = HeldClock(patch)
        self._now_s = 0.0
        self._turn = 0
        self.by_turn: Counter[int] = Counter()
        broker.store.reading.reader.budget.clock = lambda: self._now_s
        broker.store.reading.reader.budget._at_s = self._now_s

        def matches(_: SqlFilter, properties: Mapping[str, str]) -> bool:
            self._now_s += COST_S
            self.by_turn[self._turn] += 1
            return properties.get("n") == "9"

        patch.setattr(SqlFilter, "matches", matches)

    async def turn(self) -> None:
        await asyncio.sleep(0)
        self._turn += 1
        self._now_s += 0.001
        self._held.advance(0.001)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    served = ServedBroker(tmp_path, Clock(), {})
    served.create_topic("orders")
    for number in range(MESSAGES):
        served.put("orders", properties=f"n\x01{number}\x02")
    yield served
    await served.close()


def expression(number: int) -> dict[str, str]:
    # Of each reader its own: a verdict is known to all who ask for the same.
    return {"subscription": f"n = '{number}'", "expressionType": "SQL92"}


def pull(peer: Peer, number: int, offset: int, suspend_ms: int = 0) -> Command:
    fields = pull_fields("orders", offset, suspend_ms=suspend_ms) | expression(number)
    return Command(code=RequestCode.PULL_MESSAGE, opaque=number, ext=fields)


def pop(peer: Peer, number: int, poll_ms: int = 0) -> Command:
    fields = {
        "consumerGroup": f"group-{number}",
        "topic": "orders",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "60000",
        "pollTime": str(poll_ms),
        "bornTime": "0",
        "initMode": "0",
        "exp": f"n = '{number}'",
        "expType": "SQL92",
        "order": "false",
    }
    return Command(code=RequestCode.POP_MESSAGE, opaque=number, ext=fields)


def codes(answers: list[bytes]) -> list[int]:
    decoder = FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)
    return [decode_header(*frame).code for frame in decoder.feed(b"".join(answers))]


async def test_pulls_of_many_readers_filter_a_little_in_each_turn(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly = Costly(broker, monkeypatch)
    peers = [Peer() for _ in range(READERS)]
    for number, peer in enumerate(peers):
        answer = broker.begin(peer, pull(peer, number, 0))
        if answer:
            peer.written.append(answer)
    while not all(peer.written for peer in peers):
        await costly.turn()
    assert max(costly.by_turn.values()) <= PER_TURN
    assert sum(costly.by_turn.values()) >= READERS, "everybody has come a bit further"
    assert len(costly.by_turn) >= READERS / PER_TURN


async def test_so_do_pulls_that_have_waited_for_a_message(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = [Peer() for _ in range(READERS)]
    for number, peer in enumerate(peers):
        assert not broker.begin(peer, pull(peer, number, MESSAGES, suspend_ms=20_000))
    costly = Costly(broker, monkeypatch)
    broker.put("orders", properties="n\x019\x02")
    broker.store.flush_now()
    while not all(peer.written for peer in peers):
        await costly.turn()
    assert max(costly.by_turn.values()) <= PER_TURN
    assert [codes(peer.written) for peer in peers] == [[ResponseCode.SUCCESS]] * READERS


@needs("pop")
@pytest.mark.parametrize("poll_ms", [0, 20_000])
async def test_so_do_pops(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch, poll_ms: int
) -> None:
    costly = Costly(broker, monkeypatch)
    peers = [Peer() for _ in range(READERS)]
    for number, peer in enumerate(peers):
        answer = broker.begin(peer, pop(peer, number, poll_ms))
        if answer:
            peer.written.append(answer)
    while not all(peer.written for peer in peers):
        await costly.turn()
    assert max(costly.by_turn.values()) <= PER_TURN
    if poll_ms:
        assert [codes(peer.written) for peer in peers] == [[ResponseCode.SUCCESS]] * READERS


async def test_who_reads_without_a_filter_waits_for_nobody(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Costly(broker, monkeypatch)
    for number in range(READERS):
        peer = Peer()
        broker.begin(peer, pull(peer, number, 0))
    answer = broker.begin(
        Peer(), Command(RequestCode.PULL_MESSAGE, opaque=1, ext=pull_fields("orders", 0))
    )
    assert codes([answer]) == [ResponseCode.SUCCESS]


async def test_expressions_are_compiled_in_turns_too(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    costly = Costly(broker, monkeypatch)
    compiled: Counter[int] = Counter()
    real = Parser.parse

    def parse(parser: Parser) -> object:
        costly._now_s += COST_S
        compiled[costly._turn] += 1
        return real(parser)

    monkeypatch.setattr(Parser, "parse", parse)
    monkeypatch.setattr(sql_filter, "_cache", type(sql_filter._cache)())
    peers = [Peer() for _ in range(READERS)]
    for number, peer in enumerate(peers):
        body = (
            b'{"clientId":"c","group":"g","subscriptionData":'
            b'{"topic":"orders","subString":"m = %d","expressionType":"SQL92"}}' % number
        )
        command = Command(code=RequestCode.CHECK_CLIENT_CONFIG, opaque=1, body=body)
        answer = broker.begin(peer, command)
        if answer:
            peer.written.append(answer)
    while not all(peer.written for peer in peers):
        await costly.turn()
    assert [codes(peer.written) for peer in peers] == [[ResponseCode.SUCCESS]] * READERS
    assert sum(compiled.values()) == READERS
    assert max(compiled.values()) <= PER_TURN


async def test_what_waits_is_answered_when_the_broker_stops(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    Costly(broker, monkeypatch)
    peers = [Peer() for _ in range(3)]
    for number, peer in enumerate(peers):
        broker.begin(peer, pull(peer, number, 0))
    assert not peers[2].written
    broker.kernel.puller.turns.stop()
    assert all(codes(peer.written) for peer in peers[1:])
