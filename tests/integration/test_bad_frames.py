"""Bytes that are no frames, headers that are no headers: the connection closes, nothing else."""

import asyncio
import json
import struct

import pytest

from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode, ResponseCode
from rockhopper.protocol.frame import FRAME_SIZE_BYTES_MAX
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import RawPeer, frame, request
from tests.support.unharmed import Unharmed

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEADER = b'{"code":105,"extFields":{"topic":"T"},"flag":0,"opaque":5}'
SEND_V2 = {
    "a": "tests",
    "b": "orders",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}
SEND = request(RequestCode.SEND_MESSAGE, send_fields("orders"), b"hello")


def lengths(total: int, header_word: int) -> bytes:
    return struct.pack(">II", total, header_word)


def binary_header(
    remark_size: int = 0, ext_size: int = 0, ext: bytes = b"", code: int = 105
) -> bytes:
    head = struct.pack(">hbhiii", code, 0, 479, 5, 0, remark_size)
    return frame(head + struct.pack(">i", ext_size) + ext, serialize_type=1)


CLOSING = {
    "F1 total length 0": lengths(0, 0),
    "F2 total length 3": lengths(3, 0),
    "F3 total length 0xFFFFFFFF": b"\xff\xff\xff\xff",
    "F4 total length 0x80000000": b"\x80\x00\x00\x00",
    "F5 total length 16 MiB + 1": struct.pack(">I", FRAME_SIZE_BYTES_MAX + 1),
    "F6 HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "F7 TLS hello": bytes.fromhex("16030100f1010000ed0303") + bytes(range(200)),
    "F8 header longer than the frame": lengths(100, 101) + bytes(96),
    "F9 header length 0xFFFFFF": lengths(100, 0xFFFFFF) + bytes(96),
    "F9 header beyond its own limit": lengths(FRAME_SIZE_BYTES_MAX, 262_145),
    "F10 header length 0": lengths(4, 0),
    "F11 serialisation 9": frame(HEADER, serialize_type=9),
    "F11 serialisation 255": frame(HEADER, serialize_type=255),
    "J1 no JSON": frame(b"this is not JSON"),
    "J1 half of a JSON": frame(HEADER[:-3]),
    "J2 an array": frame(b"[1,2,3]"),
    "J3 null": frame(b"null"),
    "J5 code abc": frame(b'{"code":"abc","opaque":5}'),
    "J6 code 2^40": frame(b'{"code":1099511627776,"opaque":5}'),
    "J7 nested 100,000 times": frame(b'{"code":10,"extFields":' + b'{"a":' * 50_000),
    "J7 nested in an unknown key": frame(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "J8 ext value an object": frame(b'{"code":105,"extFields":{"topic":{"a":"b"}}}'),
    "J8 ext value an array": frame(b'{"code":105,"extFields":{"topic":["b"]}}'),
    "J8 ext fields an array": frame(b'{"code":105,"extFields":["topic"]}'),
    "J9 invalid UTF-8": frame(b'{"code":105,"extFields":{"topic":"\xff\xfe"}}'),
    "J9 invalid UTF-8 in a skipped key": frame(b'{"code":105,"other":"\xff"}'),
    "J9 invalid UTF-8 in a send": request(310, SEND_V2, b"x").replace(b"orders", b"ord\xf0\xc4s"),
    "J9 invalid UTF-8 in a batch": request(320, SEND_V2, b"x").replace(b"orders", b"ord\xf0\xc4s"),
    "J9 invalid UTF-8 in a pull": request(11, pull_fields("orders", 0)).replace(
        b"orders", b"ord\xf0\xc4s"
    ),
    "J10 too many ext keys": frame(
        b'{"code":105,"extFields":{%b}}' % b",".join(b'"%d":"1"' % n for n in range(20_000))
    ),
    "J6 opaque 2^40 of a send": request(310, SEND_V2, b"x", opaque=2**40),
    "J6 opaque 2^40 of a pull": request(11, pull_fields("orders", 0), opaque=2**40),
    "J12 NaN opaque": frame(b'{"code":105,"opaque":NaN}'),
    "B1 binary remark -1": binary_header(remark_size=-1),
    "B2 binary remark 2^31-1": binary_header(remark_size=2**31 - 1),
    "B3 binary ext 2^30": binary_header(ext_size=2**30),
    "B3 binary ext -1": binary_header(ext_size=-1),
    "B4 binary key 65535": binary_header(ext_size=6, ext=b"\xff\xff" + b"abcd"),
    "B5 binary value -5": binary_header(ext_size=9, ext=b"\x00\x03key" + struct.pack(">i", -5)),
    "B binary header cut short": frame(b"\x00\x69\x00", serialize_type=1),
    "msgpack garbage": frame(b"\xc1\xc1\xc1", serialize_type=2),
    "msgpack nested": frame(b"\x91" * 50_000, serialize_type=2),
    "msgpack of a billion entries": frame(b"\xdf\x3b\x9a\xca\x00", serialize_type=2),
    "random bytes": bytes((n * 2654435761 >> 7) & 0xFF | 1 for n in range(4096)),
}


@pytest.mark.parametrize("data", CLOSING.values(), ids=CLOSING.keys())
async def test_it_closes_its_connection_and_nothing_else(unharmed: Unharmed, data: bytes) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(data)
        assert await peer.until_closed() == b""
        (line,) = [line for line in unharmed.lines if line.get("peer") == peer.name]
        assert line["log_level"] == "warning"
        assert "\n" not in line["reason"]
    await unharmed.check()
    assert unharmed.broker.servers.remoting.connections  # the neighbour's


@pytest.mark.parametrize("name", ["F3 total length 0xFFFFFFFF", "J1 no JSON", "J9 invalid UTF-8"])
async def test_the_name_service_closes_on_it_too(unharmed: Unharmed, name: str) -> None:
    async with RawPeer(unharmed.broker.nameserver) as peer:
        peer.send(CLOSING[name])
        assert await peer.until_closed() == b""
        assert len([line for line in unharmed.lines if line.get("peer") == peer.name]) == 1
    await unharmed.check()


async def test_the_frames_in_front_of_a_broken_one_are_answered(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(SEND + request(9999, opaque=2) + frame(b"[]") + SEND)
        first, second = await peer.answers(2)
        assert (first.code, second.code) == (ResponseCode.SUCCESS, 3)
        assert await peer.until_closed() == b""
    assert unharmed.broker.store.reading.queue_range("orders", 0) == (0, 1)
    await unharmed.check()


async def test_f12_half_a_frame_and_a_close_stores_nothing(unharmed: Unharmed) -> None:
    end = unharmed.broker.store.log.written_offset
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(SEND[:-2])
        peer.finish()
        assert await peer.until_closed() == b""
    assert unharmed.broker.store.log.written_offset == end
    assert "orders" not in unharmed.broker.tables.topics
    await unharmed.check()


async def test_f13_a_frame_byte_by_byte_is_served(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        for byte in SEND:
            peer.send(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await peer.answer()).code == ResponseCode.SUCCESS
    await unharmed.check()


async def test_f14_ten_thousand_frames_at_once_are_answered_in_order(unharmed: Unharmed) -> None:
    ext = {"topic": "neighbour", "queueId": "0"}
    frames = [
        request(RequestCode.GET_MAX_OFFSET, ext, opaque=opaque)
        if opaque % 10
        else request(RequestCode.SEND_MESSAGE_V2, SEND_V2, b"hello", opaque=opaque)
        for opaque in range(10_000)
    ]
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(b"".join(frames))
        answers = await peer.answers(10_000)
    assert [answer.opaque for answer in answers] == list(range(10_000))
    assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    await unharmed.check()


async def test_j4_a_header_without_a_code_is_an_unknown_request(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(frame(b'{"opaque":7,"flag":0}'))
        answer = await peer.answer()
    assert (answer.code, answer.opaque) == (3, 7)
    assert answer.remark == " request type 0 not supported"
    await unharmed.check()


async def test_j8_an_ext_value_null_is_an_absent_one(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": None, "queueId": 0})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topic" in (answer.remark or "")
    await unharmed.check()


async def test_j11_the_last_of_two_codes_counts(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(frame(b'{"code":105,"code":9999,"opaque":7}'))
        assert (await peer.answer()).remark == " request type 9999 not supported"
    await unharmed.check()


@pytest.mark.parametrize("code", [310, 320, 11])
async def test_j11_that_is_so_for_the_frequent_codes_too(unharmed: Unharmed, code: int) -> None:
    ext = json.dumps(SEND_V2 | pull_fields("orders", 0)).encode()
    header = b'{"code":%d,"extFields":%b,"opaque":7,"code":9999}' % (code, ext)
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(frame(header, b"x"))
        assert (await peer.answer()).remark == " request type 9999 not supported"
    await unharmed.check()


@pytest.mark.parametrize("code", [3100, 3205, 110])
async def test_c1_codes_that_begin_like_a_frequent_one_are_unknown(
    unharmed: Unharmed, code: int
) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(code, SEND_V2 | pull_fields("orders", 0), b"x")
        assert answer.remark == f" request type {code} not supported"
    assert "orders" not in unharmed.broker.tables.topics
    await unharmed.check()


async def test_j13_numbers_and_booleans_as_ext_values_are_served(unharmed: Unharmed) -> None:
    ext: dict[str, object] = {
        **send_fields("orders"),
        "queueId": 3,
        "sysFlag": 0,
        "bornTimestamp": 1_700_000_000_000,
        "unitMode": False,
        "batch": False,
    }
    async with RawPeer(unharmed.broker.address) as peer:
        for code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE):
            answer = await peer.ask(code, ext, b"hello")
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert (answer.ext or {})["queueId"] == "3"
    await unharmed.check()


@pytest.mark.parametrize("code", [9999, -1, 2**31 - 1, -(2**31)])
async def test_c1_c2_an_unknown_code_is_named(unharmed: Unharmed, code: int) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        answer = await peer.ask(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported"
    await unharmed.check()


async def test_c3_an_answer_that_nobody_asked_for_is_dropped(unharmed: Unharmed) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(request(0, opaque=77, flag=FLAG_RESPONSE) * 100)
        assert (await peer.ask(9999)).opaque == 1
    await unharmed.check()


@pytest.mark.parametrize(
    "code", [9999, RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE]
)
async def test_c4_a_oneway_request_is_never_answered(unharmed: Unharmed, code: int) -> None:
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(request(code, {"topic": "a/b"}, opaque=2, flag=FLAG_ONEWAY))
        assert (await peer.ask(9999)).opaque == 1
    await unharmed.check()


async def test_c5_requests_of_one_opaque_are_all_answered(unharmed: Unharmed) -> None:
    ext = {"topic": "neighbour", "queueId": "0"}
    async with RawPeer(unharmed.broker.address) as peer:
        peer.send(request(RequestCode.GET_MAX_OFFSET, ext, opaque=7) * 20_000)
        answers = await peer.answers(20_000)
    assert {(answer.code, answer.opaque) for answer in answers} == {(0, 7)}
    await unharmed.check()


async def test_a_connection_that_sends_nothing_more_leaves_nothing(unharmed: Unharmed) -> None:
    for _ in range(50):
        async with RawPeer(unharmed.broker.address) as peer:
            peer.send(json.dumps({"code": 34}).encode())
            peer.finish()
            await peer.until_closed()
    assert len(unharmed.broker.servers.remoting.connections) == 1
    await unharmed.check()
