"""The sink codes (70002 to 70005) over a socket, and with a daemon that is killed."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkPart, SinkRun, encode_sink_body
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages, encode_batch
from tests.support.daemon import Daemon
from tests.support.direct import pull_fields
from tests.support.raw_peer import RawPeer, request

SINK = "checkpoint-7"


def message(
    text: str, topic: str = "sunk", queue_id: int = -1, properties: str = ""
) -> SinkMessage:
    return SinkMessage(topic, queue_id, 0, 1_700_000_000_000, properties, text.encode())


async def ask(peer: RawPeer, code: int, body: bytes = b"", **fields: object) -> Command:
    peer.send(request(code, {"sinkId": SINK, **fields}, body))
    return await peer.answer()


async def stage(
    peer: RawPeer, batch: int, part: str, texts: list[str], sequence: int = 0, **more: object
) -> Command:
    body = encode_sink_body([message(text) for text in texts])
    fields = {"batchId": batch, "part": part, "sequence": sequence, **more}
    return await ask(peer, RequestCode.SINK_STAGE, body, **fields)


async def publish(peer: RawPeer, batch: int, **counts: int) -> Command:
    body = encode_sink_body([SinkPart(name, count) for name, count in counts.items()])
    return await ask(peer, RequestCode.SINK_PUBLISH, body, batchId=batch)


async def bodies(peer: RawPeer) -> list[str]:
    found: list[str] = []
    for queue_id in range(4):
        peer.send(request(RequestCode.PULL_MESSAGE, pull_fields("sunk", 0, queue_id)))
        answer = await peer.answer()
        found += [m.body.decode() for m in decode_messages(answer.body)]
    return sorted(found)


async def test_a_staged_batch_appears_when_it_is_published(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        answer = await stage(peer, 0, "p0", ["a", "b"])
        assert (answer.code, answer.ext) == (0, {"messageCount": "2"})
        assert (await stage(peer, 0, "p0", ["c"], 1)).ext == {"messageCount": "3"}
        assert (await stage(peer, 0, "p0", ["c"], 1)).ext == {"messageCount": "3"}
        assert await bodies(peer) == []
        assert (await ask(peer, RequestCode.SINK_STATUS)).ext["lastBatchId"] == "-1"  # type: ignore[index]
        answer = await publish(peer, 0, p0=3)
        assert answer.ext == {"messageCount": "3", "repeated": "false"}
        assert await bodies(peer) == ["a", "b", "c"]
        assert (await publish(peer, 0, p0=3)).ext == {"messageCount": "3", "repeated": "true"}
        assert await bodies(peer) == ["a", "b", "c"]
        status = await ask(peer, RequestCode.SINK_STATUS)
        assert status.ext == {"lastBatchId": "0", "stagedBytes": "0"}


async def test_parts_that_are_not_named_are_not_published(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        await stage(peer, 0, "p0_failed", ["x"])
        await stage(peer, 0, "p0", ["a"])
        await publish(peer, 0, p0=1)
        assert await bodies(peer) == ["a"]


async def test_a_part_that_is_named_twice_is_not_published(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        await stage(peer, 0, "p0", ["a"])
        twice = encode_sink_body([SinkPart("p0", 1), SinkPart("p0", 1)])
        answer = await ask(peer, RequestCode.SINK_PUBLISH, twice, batchId=0)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "twice" in (answer.remark or "")
        assert (await publish(peer, 0, p0=1)).code == 0
        assert await bodies(peer) == ["a"]


async def test_an_aborted_batch_leaves_nothing(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        await stage(peer, 0, "p0", ["a"])
        assert (await ask(peer, RequestCode.SINK_ABORT, batchId=0)).code == 0
        answer = await publish(peer, 0, p0=1)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "contains 0 messages, not 1" in (answer.remark or "")


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        (message("a", topic="no/such"), ResponseCode.INVALID_PARAMETER, "no/such"),
        (message("a", topic="%RETRY%g"), ResponseCode.NO_PERMISSION, "forbidden"),
        (message("a", topic="SCHEDULE_TOPIC_XXXX"), ResponseCode.NO_PERMISSION, "forbidden"),
        (message("a", queue_id=99), ResponseCode.INVALID_PARAMETER, "queue 99"),
        (
            message("a", properties="REAL_TOPIC\x01t\x02"),
            ResponseCode.INVALID_PARAMETER,
            "REAL_TOPIC",
        ),
        (message("a", properties="DELAY\x01soon\x02"), ResponseCode.INVALID_PARAMETER, "'soon'"),
        (message("a", properties="TIMER_DELIVER_MS\x0199999999999999\x02"), 13, "timerMaxDelaySec"),
        (message("a", properties="a\x01" + "v" * 32_700), ResponseCode.MESSAGE_ILLEGAL, "32000"),
        (message("a" * ((4 << 20) + 1)), ResponseCode.MESSAGE_ILLEGAL, "maxMessageSize"),
        (SinkMessage("sunk", 0, 0, 1 << 63, "", b"a"), ResponseCode.INVALID_PARAMETER, "born time"),
        (SinkMessage("sunk", 0, 0, -1, "", b"a"), ResponseCode.INVALID_PARAMETER, "born time"),
    ],
)
async def test_what_could_not_be_published_is_refused_when_it_is_staged(
    broker: Broker, bad: SinkMessage, code: int, says: str
) -> None:
    batch = encode_batch(
        (each.flag, each.body, each.properties.encode()) for each in (message("good"), bad)
    )
    as_run = SinkRun(bad.topic, bad.queue_id, bad.born_time_ms, batch)
    async with RawPeer(broker.address) as peer:
        for second in (bad, as_run):
            body = encode_sink_body([message("good"), *[second]])
            answer = await ask(peer, RequestCode.SINK_STAGE, body, batchId=0, part="p0")
            assert answer.code == code
            assert says in (answer.remark or "")
        assert (await ask(peer, RequestCode.SINK_STATUS)).ext == {
            "lastBatchId": "-1",
            "stagedBytes": "0",
        }


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"sinkId": "", "batchId": 0, "part": "p"}, "sink's id"),
        ({"batchId": -1, "part": "p"}, "batch id is -1"),
        ({"batchId": 0, "part": "../p"}, "'../p'"),
        ({"batchId": 0, "part": "p", "sequence": 3}, "continues with sequence 0, not 3"),
    ],
)
async def test_a_request_that_contradicts_itself_says_how(
    broker: Broker, fields: dict[str, object], says: str
) -> None:
    async with RawPeer(broker.address) as peer:
        body = encode_sink_body([message("a")])
        answer = await ask(peer, RequestCode.SINK_STAGE, body, **fields)
    assert answer.code != 0
    assert says in (answer.remark or "")


async def test_a_run_of_messages_is_published_whole_and_once(broker: Broker) -> None:
    plain = [(0, b"%d" % n, b"UNIQ_KEY\x01A%d\x02" % n) for n in range(3)]
    runs: list[SinkMessage | SinkRun] = [
        SinkRun("sunk", -1, 7, encode_batch(plain)),
        SinkRun("sunk", 2, 7, b"broken"),
    ]
    async with RawPeer(broker.address) as peer:
        fields: dict[str, object] = {"batchId": 0, "part": "p0"}
        body = encode_sink_body([message("a"), *runs[:1]])
        answer = await ask(peer, RequestCode.SINK_STAGE, body, **fields)
        assert answer.ext == {"messageCount": "4"}
        answer = await ask(
            peer, RequestCode.SINK_STAGE, encode_sink_body(runs), **fields, sequence=1
        )
        assert "a run of messages is malformed" in (answer.remark or "")
        assert await bodies(peer) == []
        for is_repeated in ("false", "true"):
            answer = await publish(peer, 0, p0=4)
            assert answer.ext == {"messageCount": "4", "repeated": is_repeated}
            assert await bodies(peer) == ["0", "1", "2", "a"]


async def test_a_body_that_is_no_msgpack_is_refused(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        for code in (RequestCode.SINK_STAGE, RequestCode.SINK_PUBLISH):
            answer = await ask(peer, code, b"\xc1nonsense", batchId=0, part="p")
            assert "msgpack" in (answer.remark or "")


async def test_delayed_messages_of_a_batch_wait(broker: Broker) -> None:
    async with RawPeer(broker.address) as peer:
        body = encode_sink_body([message("later", properties="DELAY\x0118\x02"), message("now")])
        await ask(peer, RequestCode.SINK_STAGE, body, batchId=0, part="p0")
        await publish(peer, 0, p0=2)
        assert await bodies(peer) == ["now"]
        assert broker.store.reading.queue_range("SCHEDULE_TOPIC_XXXX", 17) == (0, 1)


@pytest.mark.costly
async def test_owners_and_homes_of_sinks_outlive_kill_9(tmp_path: Path) -> None:
    body = encode_sink_body([SinkPart("p0", 1)])
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        assert (await stage(peer, 0, "p0", ["a"], owner="query 1")).code == 0
        ours = {"batchId": 0, "owner": "query 1"}
        assert (await ask(peer, RequestCode.SINK_PUBLISH, body, **ours)).code == 0
        away: dict[str, Any] = {"sinkId": "elsewhere", "broker": "broker-b"}
        assert (await ask(peer, RequestCode.SINK_HOME, **away)).code == 0
        await daemon.kill()
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        assert (await ask(peer, RequestCode.SINK_STATUS)).ext["owner"] == "query 1"  # type: ignore[index]
        known = await ask(peer, RequestCode.SINK_STATUS, sinkId="elsewhere")
        assert (known.ext or {})["home"] == "broker-b"
        assert "1 to 255" in ((await ask(peer, RequestCode.SINK_HOME, broker="")).remark or "")
        refused = await ask(peer, RequestCode.SINK_HOME, broker="broker-b")
        assert refused.code == ResponseCode.ILLEGAL_OPERATION
        for answer in (
            await stage(peer, 0, "p0", ["b"], owner="query 2"),
            await ask(peer, RequestCode.SINK_PUBLISH, body, batchId=0, owner="query 2"),
        ):
            assert answer.code == ResponseCode.ILLEGAL_OPERATION
            assert "has batches of query 1, but this is query 2" in (answer.remark or "")
        assert (await ask(peer, RequestCode.SINK_PUBLISH, body, **ours)).ext["repeated"] == "true"  # type: ignore[index]
        assert await bodies(peer) == ["a"]


@pytest.mark.costly
async def test_staged_parts_and_the_last_batch_outlive_kill_9(tmp_path: Path) -> None:
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        await stage(peer, 0, "p0", ["a"])
        await publish(peer, 0, p0=1)
        await stage(peer, 1, "p0", ["b"])
        await daemon.kill()
    async with Daemon(tmp_path) as daemon, RawPeer(daemon.address) as peer:
        assert (await publish(peer, 0, p0=1)).ext["repeated"] == "true"  # type: ignore[index]
        assert (await publish(peer, 1, p0=1)).ext["repeated"] == "false"  # type: ignore[index]
        assert await bodies(peer) == ["a", "b"]
