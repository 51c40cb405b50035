"""Offsets of clients that know nothing of histories: which of them are of an older log."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rockhopper.broker.kernel.members.consumer_groups import PULLING, Client, ConsumeSettings
from rockhopper.broker.kernel.pull import reader_positions
from rockhopper.protocol.bodies.log_history import (
    HistoryQuestion,
    decode_history_answer,
    encode_history,
)
from rockhopper.protocol.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.direct import pull_fields
from tests.support.peers import Clock, Peer
from tests.support.served_broker import ServedBroker
from tests.support.turns import until

GROUP = "billing"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ServedBroker]:
    """Give one whose log ended behind 10 messages when it started, and has 15 by now."""
    served = ServedBroker(tmp_path, Clock(), {})
    served.create_topic("orders")
    served.tables.groups.find_or_create(GROUP)
    for _ in range(10):
        served.put("orders")
    served.tables.catalog.history.start_run(served.store.log.written_offset)
    for _ in range(5):
        served.put("orders")
    yield served
    await served.close()


def join(
    broker: ServedBroker, peer: Peer, model: str = "CLUSTERING", kind: str = "CONSUME_PASSIVELY"
) -> Peer:
    client = Client(peer.connection, f"c{peer.addresses.peer_port}", language=0, version=479)
    broker.kernel.consumers.register(GROUP, client, ConsumeSettings(kind, model), {})
    return peer


def sender() -> Peer:
    """The connection by which ServedBroker.put sends."""
    return Peer("10.1.2.3", 4567)


async def pull(broker: ServedBroker, peer: Peer, offset: int) -> tuple[ResponseCode, int]:
    """Pull one message; the code, and where to go on."""
    fields = pull_fields("orders", offset) | {
        "consumerGroup": GROUP,
        "maxMsgNums": "1",
    }
    answer = await broker.ask(RequestCode.PULL_MESSAGE, fields, peer=peer)
    return ResponseCode(answer.code), int((answer.ext or {})["nextBeginOffset"])


async def test_who_was_further_than_the_log_goes_on_at_its_end_at_the_start(
    broker: ServedBroker,
) -> None:
    peer = join(broker, Peer())
    assert await pull(broker, peer, 15) == (ResponseCode.PULL_OFFSET_MOVED, 10)
    assert await pull(broker, peer, 10) == (ResponseCode.SUCCESS, 11)
    assert await pull(broker, peer, 14) == (ResponseCode.SUCCESS, 15)


async def test_who_was_further_than_the_present_end_skips_nothing_either(
    broker: ServedBroker,
) -> None:
    assert await pull(broker, join(broker, Peer()), 30) == (ResponseCode.PULL_OFFSET_MOVED, 10)


async def test_the_committed_offset_counts_more_than_the_end(broker: ServedBroker) -> None:
    broker.tables.offsets.commit("orders", GROUP, 0, 7)
    assert await pull(broker, join(broker, Peer()), 14) == (ResponseCode.PULL_OFFSET_MOVED, 7)
    assert await pull(broker, join(broker, Peer()), 7) == (ResponseCode.SUCCESS, 8)


async def test_who_is_not_online_but_has_committed_is_checked_too(broker: ServedBroker) -> None:
    broker.tables.offsets.commit("orders", GROUP, 0, 7)
    assert await pull(broker, Peer(), 14) == (ResponseCode.PULL_OFFSET_MOVED, 7)


async def test_after_a_purge_connections_are_checked_again(broker: ServedBroker) -> None:
    peer = join(broker, Peer())
    assert await pull(broker, peer, 10) == (ResponseCode.SUCCESS, 11)
    broker.parts.purge()
    broker.create_topic("orders")
    broker.put("orders")
    assert await pull(broker, peer, 11) == (ResponseCode.PULL_OFFSET_MOVED, 0)


async def test_a_pull_that_waited_over_a_purge_is_checked_again(broker: ServedBroker) -> None:
    peer = join(broker, Peer())
    broker.kernel.positions.tell(peer.connection, "orders", 0, 15)
    fields = pull_fields("orders", 15, suspend_ms=15_000) | {"consumerGroup": GROUP}
    waiting = asyncio.ensure_future(broker.ask(RequestCode.PULL_MESSAGE, fields, peer=peer))
    await until(lambda: len(broker.kernel.long_polling) == 1)
    broker.kernel.positions.purge()
    broker.put("orders")
    answer = await waiting
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert (answer.ext or {})["nextBeginOffset"] == "10"


async def test_a_reader_without_a_group_reads_where_it_likes(broker: ServedBroker) -> None:
    assert await pull(broker, Peer(), 14) == (ResponseCode.SUCCESS, 15)
    assert await pull(broker, Peer(), 30) == (ResponseCode.PULL_OFFSET_MOVED, 15)


async def test_another_member_may_go_on_where_the_group_was(broker: ServedBroker) -> None:
    first = join(broker, Peer())
    for offset in range(9, 14):
        await pull(broker, first, offset)
    assert await pull(broker, join(broker, Peer(port=2)), 14) == (ResponseCode.SUCCESS, 15)


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_MAX_OFFSET, {}),
        (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {"timestamp": "9999999999999"}),
    ],
)
async def test_what_a_connection_was_told_it_may_read(
    broker: ServedBroker, code: RequestCode, fields: dict[str, str]
) -> None:
    peer = join(broker, Peer())
    told = await broker.ask(code, {"topic": "orders", "queueId": "0"} | fields, peer=peer)
    assert told.ext == {"offset": "15"}
    other = join(broker, Peer(port=2))
    assert await pull(broker, other, 14) == (ResponseCode.PULL_OFFSET_MOVED, 10)
    assert (await pull(broker, peer, 14))[0] == ResponseCode.SUCCESS


@pytest.mark.parametrize("offset", [13, 15])
async def test_who_chooses_positions_may_read_at_and_behind_what_it_sent(
    broker: ServedBroker, offset: int
) -> None:
    other = join(broker, Peer(port=2), kind=PULLING)
    assert await pull(broker, other, offset) == (ResponseCode.PULL_OFFSET_MOVED, 10)
    code, _ = await pull(broker, join(broker, sender(), kind=PULLING), offset)
    assert code == (ResponseCode.SUCCESS if offset < 15 else ResponseCode.PULL_NOT_FOUND)


async def test_nothing_farther_is_known_by_a_receipt(broker: ServedBroker) -> None:
    peer = join(broker, sender(), kind=PULLING)
    assert await pull(broker, peer, 16) == (ResponseCode.PULL_OFFSET_MOVED, 10)


async def test_a_push_consumer_learns_nothing_by_what_its_process_sends(
    broker: ServedBroker,
) -> None:
    """Its old position would look like one of a receipt wherever the log lost few messages."""
    peer = join(broker, sender())
    assert await pull(broker, peer, 15) == (ResponseCode.PULL_OFFSET_MOVED, 10)


async def test_each_host_of_a_broadcast_group_has_a_place_of_its_own(broker: ServedBroker) -> None:
    one = join(broker, Peer("10.0.0.1"), "BROADCASTING")
    for offset in range(9, 15):
        await pull(broker, one, offset)
    other = join(broker, Peer("10.0.0.2", 2), "BROADCASTING")
    assert await pull(broker, other, 14) == (ResponseCode.PULL_OFFSET_MOVED, 10)
    again = join(broker, Peer("10.0.0.1", 3), "BROADCASTING")
    assert (await pull(broker, again, 14))[0] == ResponseCode.SUCCESS


async def test_who_has_compared_histories_is_taken_at_its_word(broker: ServedBroker) -> None:
    peer = join(broker, Peer())
    ids = broker.tables.catalog.history.ids(1)
    question = encode_history(HistoryQuestion(GROUP, ids, [("orders", 0), ("orders", 3)]))
    answer = await broker.ask(RequestCode.LOG_HISTORY, {}, question, peer=peer)
    assert decode_history_answer(answer.body).ends == [None, None]
    assert (await pull(broker, peer, 14))[0] == ResponseCode.SUCCESS


def commit(broker: ServedBroker, peer: Peer, offset: int, flag: int) -> int | None:
    fields = {"topic": "orders", "queueId": "0", "consumerGroup": GROUP}
    ext = fields | {"commitOffset": str(offset)}
    command = Command(code=RequestCode.UPDATE_CONSUMER_OFFSET, flag=flag, opaque=1, ext=ext)
    broker.begin(peer, command)
    return broker.tables.offsets.get("orders", GROUP, 0)


async def test_a_consumer_commits_nothing_of_an_older_log_in_passing(broker: ServedBroker) -> None:
    """Java clients commit what they remember, and may do so before they pull."""
    broker.tables.offsets.commit("orders", GROUP, 0, 7)
    peer = join(broker, Peer())
    assert commit(broker, peer, 14, FLAG_ONEWAY) == 7
    assert commit(broker, peer, 9, FLAG_ONEWAY) == 9
    await pull(broker, peer, 9)
    assert commit(broker, peer, 12, FLAG_ONEWAY) == 12


async def test_who_waits_for_the_answer_means_what_it_commits(broker: ServedBroker) -> None:
    assert commit(broker, join(broker, Peer()), 14, 0) == 14


async def test_a_commit_of_a_purged_position_is_not_stored_even_if_it_is_waited_for(
    broker: ServedBroker,
) -> None:
    """The consumer does not know of the purge before its next pull."""
    peer = join(broker, Peer())
    assert await pull(broker, peer, 10) == (ResponseCode.SUCCESS, 11)
    for _ in range(2):
        broker.parts.purge()
        broker.create_topic("orders")
        assert commit(broker, peer, 11, 0) is None
    broker.put("orders")
    assert await pull(broker, peer, 11) == (ResponseCode.PULL_OFFSET_MOVED, 0)
    assert await pull(broker, peer, 0) == (ResponseCode.SUCCESS, 1)
    assert commit(broker, peer, 1, 0) == 1


async def test_a_tool_may_commit_any_offset_after_a_purge(broker: ServedBroker) -> None:
    broker.parts.purge()
    broker.create_topic("orders")
    broker.tables.groups.find_or_create(GROUP)
    assert commit(broker, Peer(port=9), 5, 0) == 5


async def test_what_is_kept_of_connections_and_hosts_is_bounded(
    broker: ServedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_positions, "QUEUES_PER_CONNECTION_MAX", 2)
    monkeypatch.setattr(reader_positions, "HOSTS_MAX", 2)
    peer = join(broker, Peer(), "BROADCASTING")
    for queue_id in range(4):
        broker.kernel.positions.tell(peer.connection, "orders", queue_id, 5)
        broker.kernel.positions.claim(peer.connection, GROUP, "orders", queue_id)
    known = peer.attributes["positions"]
    assert len(known.checked) <= 2  # type: ignore[attr-defined]
    assert len(known.told) <= 2  # type: ignore[attr-defined]
    assert len(broker.kernel.positions.hosts) == 2
