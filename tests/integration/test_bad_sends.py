"""Sends and pulls with impossible content: a clear answer, nothing stored that should not be."""

import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.message_codec import decode_message, encode_batch
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer, frame, request, until
from tests.support.unharmed import Unharmed

pytestmark = pytest.mark.asyncio(loop_scope="module")

SEND = RequestCode.SEND_MESSAGE
SEND_V2 = RequestCode.SEND_MESSAGE_V2
BATCH = RequestCode.SEND_BATCH_MESSAGE
PULL = RequestCode.PULL_MESSAGE
LETTERS = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "batch": "m",
}
NAMES = [
    "../../etc/x",
    "a/b",
    ".",
    "..",
    "",
    "t" * 300,
    "t" * 10_000,
    "a\0b",
    "топик",
    "a\\b",
    "a b",
]
MESSAGE = struct.Struct(">iiiii")


@pytest_asyncio.fixture(loop_scope="module")
async def roomy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Unharmed]:
    """A broker whose files hold bodies of 4 MiB; checking it takes longer."""
    settings = {"mappedFileSizeCommitLog": str(12 << 20)}
    async with Unharmed(tmp_path, monkeypatch, settings) as made:
        yield made


def fields(code: int, **changes: object) -> dict[str, object]:
    """The header of a send in the names of its code; None leaves a field out."""
    ext: dict[str, object] = {**send_fields("orders"), "reconsumeTimes": "0", **changes}
    ext = {name: value for name, value in ext.items() if value is not None}
    if code == SEND:
        return ext
    return {LETTERS[name]: value for name, value in ext.items()}


def is_plain(answer: Command) -> bool:
    """Whether a remark is a sentence: no exception, no stack, not a page long."""
    remark = answer.remark or ""
    return (
        bool(remark)
        and "\n" not in remark
        and "Traceback" not in remark
        and "Error:" not in remark
        and "Exception" not in remark
        and len(remark) < 12_000
    )


@pytest.mark.parametrize("code", [SEND, SEND_V2, BATCH])
@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:12]))
async def test_s1_to_s7_bad_topic_names_make_no_directory(
    unharmed: Unharmed, code: int, name: str
) -> None:
    body = encode_batch([(0, b"x", b"")]) if code == BATCH else b"x"
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(code, fields(code, topic=name), body)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert is_plain(answer)
    assert name not in unharmed.broker.tables.topics
    queues = unharmed.broker.config.store.root / "consumequeue"
    await until((queues / "neighbour").is_dir)  # A thread makes it.
    assert [entry.name for entry in queues.iterdir()] == ["neighbour"]
    await unharmed.check()


# What is changed in the header -> code, a word of the remark (blank for success).
REFUSED: dict[str, tuple[dict[str, object], int, str]] = {
    "S9 queueId 99999": ({"queueId": "99999"}, 29, "queueId"),
    "S10 queueId abc": ({"queueId": "abc"}, 29, "queueId|'e'"),
    "queueId 2^40": ({"queueId": str(2**40)}, 29, "queueId|'e'"),
    "S13 properties of 40,000": ({"properties": "k\x01" + "v" * 40_000 + "\x02"}, 13, "properties"),
    "S13 of 32,767 in UTF-8": ({"properties": "k\x01" + "ж" * 20_000 + "\x02"}, 13, "properties"),
    "S16 no topic": ({"topic": None}, 1, "topic|'b'"),
    "S16 no queueId": ({"queueId": None}, 1, "queueId|'e'"),
    "S16 no group": ({"producerGroup": None}, 1, "producerGroup|'a'"),
    "S17 SCHEDULE_TOPIC_XXXX": ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "forbidden"),
    "S17 half messages": ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "forbidden"),
    "S19 delay level abc": ({"properties": "DELAY\x01abc\x02"}, 1, "DELAY"),
    "born time 2^70": ({"bornTimestamp": str(2**70)}, 29, "bornTimestamp|'g'"),
    "flag 2^40": ({"flag": str(2**40)}, 29, "flag|'h'"),
    "sysFlag 2^31": ({"sysFlag": str(2**31)}, 29, "sysFlag|'f'"),
    "a transaction that is over": ({"sysFlag": "12"}, 13, "rolled back"),
    "a timer for never": ({"properties": "TIMER_DELIVER_MS\x01never\x02"}, 13, "not a number"),
    "a timer too far": ({"properties": "TIMER_DELAY_SEC\x01259201\x02"}, 13, "timerMaxDelaySec"),
}
ACCEPTED: dict[str, dict[str, object]] = {
    "S8 queueId -5": {"queueId": "-5"},
    "S14 properties without separators": {"properties": "no separators at all"},
    "S15 broken pairs": {"properties": "\x02\x02=\x01\x02\x01v\x02k\x01v"},
    "S18 delay level 99999": {"properties": "DELAY\x0199999\x02"},
    "S20 compressed, and is not": {"sysFlag": "1"},
    "S21 born in the year 3,170,843": {"bornTimestamp": str(10**17)},
    "sysFlag of hosts v6": {"sysFlag": str(0b110000)},
    "flag -1": {"flag": "-1"},
    "properties of 32,500": {"properties": "k\x01" + "v" * 32_500 + "\x02"},
}


@pytest.mark.parametrize("code", [SEND, SEND_V2])
@pytest.mark.parametrize(("changes", "expected", "word"), REFUSED.values(), ids=REFUSED.keys())
async def test_it_is_refused_in_plain_words(
    unharmed: Unharmed, code: int, changes: dict[str, object], expected: int, word: str
) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        assert (await peer.ask(code, fields(code), b"first")).code == ResponseCode.SUCCESS
        end = unharmed.broker.store.log.written_offset
        answer = await peer.ask(code, fields(code, **changes), b"hello")
        assert answer.code == expected, answer.remark
        assert is_plain(answer), answer.remark
        assert any(part in (answer.remark or "") for part in word.split("|")), answer.remark
        assert {"MSG_REGION", "TRACE_ON"} <= (answer.ext or {}).keys()
        assert unharmed.broker.store.log.written_offset == end
        assert (await peer.ask(code, fields(code), b"second")).code == ResponseCode.SUCCESS
    await unharmed.check()


@pytest.mark.parametrize("code", [SEND, SEND_V2])
@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED.keys())
async def test_it_is_odd_and_taken(
    unharmed: Unharmed, code: int, changes: dict[str, object]
) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        for _ in range(2):
            answer = await peer.ask(code, fields(code, **changes), b"hello")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            ext = answer.ext or {}
            offset = str(int(ext["msgId"][-16:], 16))
            found = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
            assert decode_message(found.body, check_crc=True).body == b"hello"
    await unharmed.check()


@pytest.mark.parametrize("code", [SEND, SEND_V2])
async def test_s11_an_empty_body_is_a_message(unharmed: Unharmed, code: int) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        assert (await peer.ask(code, fields(code))).code == ResponseCode.SUCCESS
        answer = await peer.ask(PULL, pull_fields("orders", 0))
        assert decode_message(answer.body).body == b""
    await unharmed.check()


@pytest.mark.parametrize("code", [SEND, SEND_V2, BATCH])
async def test_s12_a_body_of_5_mib_is_too_large(roomy: Unharmed, code: int) -> None:
    async with RawPeer(roomy.broker.address) as peer:
        await peer.ask(SEND, fields(SEND), b"first")
        end = roomy.broker.store.log.written_offset
        answer = await peer.ask(code, fields(code), bytes(5 << 20))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert is_plain(answer)
        assert roomy.broker.store.log.written_offset == end
        assert (await peer.ask(code, fields(code), bytes(17 << 18))).code == 13
    await roomy.check()


async def test_f15_a_body_of_4_mib_in_small_writes_is_stored(roomy: Unharmed) -> None:
    body = bytes(range(256)) * (4 << 12)
    data = request(SEND_V2, fields(SEND_V2), body)
    async with RawPeer(roomy.broker.address) as peer:
        for start in range(0, len(data), 4096):
            peer.send(data[start : start + 4096])
            await peer.drain()
        answer = await peer.answer()
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        found = await peer.ask(PULL, pull_fields("orders", 0))
        assert decode_message(found.body, check_crc=True).body == body
    await roomy.check()


FORGED = {
    "REAL_TOPIC": "SCHEDULE_TOPIC_XXXX",
    "REAL_QID": "99",
    "INNER_BASE": "5",
    "DUP_INFO": "0_1",
    "POP_CK": "1 2 3",
    "__CRC32#": "1",
    "CLUSTER": "theirs",
    "MSG_REGION": "theirs",
    "TRACE_ON": "maybe",
}


@pytest.mark.parametrize("code", [SEND, SEND_V2])
@pytest.mark.parametrize("name", FORGED)
async def test_s23_s24_what_only_the_broker_may_set_is_not_taken(
    unharmed: Unharmed, code: int, name: str
) -> None:
    forged = f"{name}\x01{FORGED[name]}\x02KEYS\x01k\x02"
    async with RawPeer(unharmed.broker.address) as peer:
        for _ in range(2):
            answer = await peer.ask(code, fields(code, properties=forged), b"hello")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
        answer = await peer.ask(PULL, pull_fields("orders", 0))
    first = decode_message(answer.body)
    assert first.properties.get(name) != FORGED[name]
    assert first.properties["KEYS"] == "k"
    assert (first.topic, first.queue_offset) == ("orders", 0)
    await unharmed.check()


async def test_s23_separators_in_a_value_are_stored_as_they_came(unharmed: Unharmed) -> None:
    text = "name\x01a\x01b\x02REAL_TOPIC\x01x\x02KEYS\x01k\x02"
    async with RawPeer(unharmed.broker.address) as peer:
        await peer.ask(SEND_V2, fields(SEND_V2, properties=text), b"hello")
        answer = await peer.ask(PULL, pull_fields("orders", 0))
    stored = decode_message(answer.body).properties
    assert stored["KEYS"] == "k"
    assert "REAL_TOPIC" not in stored
    assert decode_properties(text)["name"] == stored.get("name")
    await unharmed.check()


def inner(
    body: bytes = b"x",
    properties: bytes = b"",
    *,
    total: int | None = None,
    properties_size: int | None = None,
) -> bytes:
    """One message of a batch body, with sizes that may lie."""
    if total is None:
        total = 22 + len(body) + len(properties)
    if properties_size is None:
        properties_size = len(properties)
    head = MESSAGE.pack(total, 0, 0, 0, len(body))
    return head + body + struct.pack(">h", properties_size) + properties


BATCHES = {
    "M1 inner total 0": inner() + inner(total=0),
    "M2 inner total -1": inner() + inner(total=-1),
    "M2 first inner total -1": inner(total=-1) + inner(),
    "M1 inner total 2^31-1": inner() + inner(total=2**31 - 1),
    "M3 body length -1": inner() + MESSAGE.pack(30, 0, 0, 0, -1) + bytes(10),
    "M3 body length beyond": inner() + MESSAGE.pack(30, 0, 0, 0, 2**31 - 1) + bytes(10),
    "M4 cut short": (inner() * 3)[:-1],
    "M4 cut in a head": inner() + inner()[:7],
    "M5 properties -3": inner() + inner(properties=b"", total=23)[:-2] + b"\xff\xfd",
    "M5 properties -3 that add up": inner() + inner(total=20, properties_size=-3),
    "M6 empty": b"",
    "M7 one is delayed": inner() + inner(properties=b"DELAY\x013\x02"),
    "M7 one is for later": inner() + inner(properties=b"TIMER_DELIVER_MS\x019\x02"),
    "only zeros": bytes(1000),
}


@pytest.mark.parametrize("topic_exists", [True, False], ids=["known topic", "new topic"])
@pytest.mark.parametrize("body", BATCHES.values(), ids=BATCHES.keys())
async def test_m1_to_m7_nothing_of_a_broken_batch_is_stored(
    unharmed: Unharmed, body: bytes, topic_exists: bool
) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        if topic_exists:
            await peer.ask(BATCH, fields(BATCH), inner())
        end = unharmed.broker.store.log.written_offset
        held = unharmed.broker.store.reading.queue_range("orders", 0)
        answer = await peer.ask(BATCH, fields(BATCH), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL, answer.remark
        assert is_plain(answer)
        assert unharmed.broker.store.log.written_offset == end
        assert unharmed.broker.store.reading.queue_range("orders", 0) == held
        good = await peer.ask(BATCH, fields(BATCH), inner() * 3)
        assert good.code == ResponseCode.SUCCESS, good.remark
        assert (good.ext or {})["queueOffset"] == str(held[1])
    await unharmed.check()


def pull(**changes: object) -> dict[str, object]:
    return {**pull_fields("orders", 0), **changes}


PULLS: dict[str, tuple[dict[str, object], int]] = {
    "P1 offset -1": (pull(queueOffset="-1"), 21),
    "offset -2^63": (pull(queueOffset=str(-(2**63))), 21),
    "offset 2^63-1": (pull(queueOffset=str(2**63 - 1)), 21),
    "offset 2^63": (pull(queueOffset=str(2**63)), 29),
    "P2 maxMsgNums 2^31-1": (pull(maxMsgNums=str(2**31 - 1)), 0),
    "maxMsgNums 0": (pull(maxMsgNums="0"), 0),
    "maxMsgNums -5": (pull(maxMsgNums="-5"), 0),
    "P4 SQL92": (pull(subscription="a BETWEEN 1 AND", expressionType="SQL92"), 23),
    "P4 deep SQL92": (pull(subscription="(" * 10_000, expressionType="SQL92"), 23),
    "an unknown filter": (pull(expressionType="XPATH"), 23),
    "a subscription of nothing": (pull(subscription=" || "), 23),
    "8,000 tags": (pull(subscription="||".join(map(str, range(8000)))), 20),
    "30,000 tags": (pull(subscription="||".join(map(str, range(30_000)))), 23),
    "queue -1": (pull(queueId="-1"), 29),
    "queue 99999": (pull(queueId="99999"), 29),
    "queue abc": (pull(queueId="abc"), 29),
    "no topic": ({n: v for n, v in pull().items() if n != "topic"}, 1),
    "an unknown topic": (pull(topic="nothing"), 17),
    "topic ../x": (pull(topic="../x"), 17),
    "group ../x": (pull(consumerGroup="../x"), 26),
    "group of 10,000": (pull(consumerGroup="g" * 10_000), 26),
    "no group": (pull(consumerGroup=""), 26),
    "sysFlag -1": (pull(sysFlag="-1", commitOffset="-9"), 0),
    "commit offset 2^63": (pull(sysFlag="5", commitOffset=str(2**63)), 29),
    "nobody subscribed": (pull(sysFlag="0"), 24),
}


@pytest.mark.parametrize(("ext", "expected"), PULLS.values(), ids=PULLS.keys())
async def test_p1_to_p4_impossible_pulls_are_answered(
    unharmed: Unharmed, ext: dict[str, object], expected: int
) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        await peer.ask(SEND, fields(SEND), b"hello")
        for code in (PULL, RequestCode.LITE_PULL_MESSAGE):
            answer = await peer.ask(code, ext)
            assert answer.code == expected, answer.remark
            assert is_plain(answer), answer.remark
    await unharmed.check()


@pytest.mark.parametrize("suspend", [str(10**12), str(2**63 - 1), "-5"])
async def test_p3_an_endless_wait_ends_with_the_connection(
    unharmed: Unharmed, suspend: str
) -> None:
    ext = {**pull_fields("orders", 1, suspend_ms=1), "suspendTimeoutMillis": suspend}
    async with RawPeer(unharmed.broker.address) as peer:
        await peer.ask(SEND, fields(SEND), b"hello")
        peer.send(request(PULL, ext, opaque=2))
        if suspend.startswith("-"):
            assert (await peer.answer()).code == ResponseCode.PULL_NOT_FOUND
        assert (await peer.ask(9999)).opaque == 1
    await unharmed.check()


async def test_p5_a_commit_of_a_negative_offset_is_never_stored(unharmed: Unharmed) -> None:
    ext = {"consumerGroup": "billing", "topic": "orders", "queueId": "0", "commitOffset": "-9"}
    async with RawPeer(unharmed.broker.address) as peer:
        await peer.ask(SEND, fields(SEND), b"hello")
        unharmed.broker.tables.groups.find_or_create("billing")
        answer = await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, ext)
        assert answer.code == ResponseCode.SUCCESS
    assert unharmed.broker.tables.offsets.get("orders", "billing", 0) is None
    await unharmed.check()


async def test_a_header_at_its_limit_is_served(unharmed: Unharmed) -> None:
    ext = ",".join(f'"k{n}":"{"v" * 1000}"' for n in range(240))
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(frame('{"code":9999,"opaque":3,"extFields":{' + ext + "}}"))
        assert (await peer.answer()).opaque == 3
    await unharmed.check()
