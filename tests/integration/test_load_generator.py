"""The load generator believes no answer: what it counts as a failure, by servers that misbehave."""

import asyncio
import json
import shutil
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import load
from rockhopper.protocol.signing import Credentials, sign_fields
from tests.support.hang import HANG_S
from tests.support.listening import listening
from tests.support.turns import until

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

Answer = Callable[[dict[str, Any], bytes], bytes]


def frame(header: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a frame with a JSON header."""
    text = json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body


def ok(request: dict[str, Any], body: bytes) -> bytes:
    """Answer as a broker that stored the message."""
    return frame({"code": 0, "flag": 1, "opaque": request["opaque"]})


Run = tuple[int, dict[str, Any], list[tuple[Any, bytes]]]


async def run(mode: str, answer: Answer, *options: str, drain_s: float = HANG_S) -> Run:
    """Run the load generator against *answer*; return status, result and requests.

    For a moment, and for longer where a busy machine answers too little in that.
    """
    for seconds in (0.1, 1, 10, 60):
        words = (*options, "--seconds", str(seconds), "--drain", str(drain_s))
        status, result, requests = await run_once(mode, answer, *words)
        failures = ("refused", "mismatched", "unanswered", "short_pulls", "lost")
        if result["requests"] >= 16 or any(result[failure] for failure in failures):
            break
    return status, result, requests


async def run_once(mode: str, answer: Answer, *options: str) -> Run:
    """Run it with *options*, from two connections with four requests each."""
    requests: list[tuple[dict[str, Any], bytes]] = []
    begun = ended = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal begun, ended
        begun += 1
        try:
            while True:
                size, header_size = struct.unpack(">II", await reader.readexactly(8))
                header = json.loads(await reader.readexactly(header_size))
                body = await reader.readexactly(size - 4 - header_size)
                requests.append((header, body))
                writer.write(answer(header, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
        finally:
            ended += 1

    async with listening(serve) as port:
        process = await asyncio.create_subprocess_exec(
            *(str(load.build_loadgen()), "--mode", mode, "--connections", "2", "--in-flight", "4"),
            *("--port", str(port), "--batch", "3"),
            *("--warm-up", "0", *options),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        # What it has sent may not have been read yet.
        await until(lambda: begun >= 2 and ended == begun)
        return process.returncode, json.loads(output), requests


@pytest.mark.costly
async def test_every_message_has_a_unique_key_of_its_own() -> None:
    status, result, requests = await run("single", ok)
    keys = [request["extFields"]["i"].split("\x02")[0] for request, _ in requests]
    assert status == 0
    assert result["requests"] > 0
    assert len(set(keys)) == len(keys)


@pytest.mark.costly
async def test_every_message_of_a_batch_has_a_unique_key_of_its_own() -> None:
    status, result, requests = await run("batch", ok)
    keys = [part[:32] for _, body in requests for part in body.split(b"UNIQ_KEY\x01")[1:]]
    assert status == 0
    assert result["messages"] == 3 * result["requests"]
    assert len(keys) == 3 * len(requests)
    assert len(set(keys)) == len(keys)


SENDER = Credentials("sender", "the secret of the sender")


@pytest.mark.parametrize("mode", ["single", "v1", "batch"])
async def test_every_send_is_signed_as_it_is(mode: str) -> None:
    keys = ("--access-key", SENDER.access_key, "--secret", SENDER.secret)
    status, _, requests = await run(mode, ok, *keys)
    assert status == 0
    for request, body in requests:
        fields = request["extFields"]
        assert fields == sign_fields(SENDER, fields, body, request["version"])
    assert len({request["extFields"]["Signature"] for request, _ in requests}) == len(requests)


async def test_connections_send_to_different_queues() -> None:
    _, _, requests = await run("single", ok)
    assert {request["extFields"]["e"] for request, _ in requests} == {"0", "1"}


async def test_answer_with_another_code_is_a_refusal() -> None:
    def busy(request: dict[str, Any], body: bytes) -> bytes:
        ext = {"code": "0", "opaque": "0"}
        header = {"extFields": ext, "code": 2, "opaque": request["opaque"], "remark": "busy"}
        return frame(header)

    status, result, _ = await run("single", busy)
    assert status == 1
    assert result["refused"] > 0
    assert (result["first_refusal"], result["first_remark"]) == (2, "busy")


async def test_answer_to_a_request_never_made_is_a_mismatch() -> None:
    def foreign(request: dict[str, Any], body: bytes) -> bytes:
        return frame({"code": 0, "opaque": request["opaque"] + 1000})

    for drain_s in (0.2, 2, 20):
        status, result, _ = await run("single", foreign, drain_s=drain_s)
        if result["mismatched"]:
            break
    assert status == 1
    assert result["mismatched"] > 0
    assert result["unanswered"] == 8


async def test_second_answer_to_a_request_is_a_mismatch() -> None:
    status, result, _ = await run("single", lambda request, body: ok(request, body) * 2)
    assert status == 1
    assert result["mismatched"] > 0


async def test_missing_answers_are_counted() -> None:
    status, result, _ = await run("single", lambda request, body: b"", drain_s=0.1)
    assert status == 1
    assert result["unanswered"] == 8


def a_broker_with(records: int) -> Answer:
    """Make a broker whose queues reach from 0 to 9 and whose pulls bring so many *records*."""

    def answer(request: dict[str, Any], body: bytes) -> bytes:
        offset = {30: "9", 31: "0"}.get(request["code"])
        if offset is not None:
            ext = {"offset": offset}
            return frame({"code": 0, "opaque": request["opaque"], "extFields": ext})
        record = struct.pack(">II", 100, 0xDAA320A7).ljust(100, b"\0")
        return frame({"code": 0, "opaque": request["opaque"]}, record * records)

    return answer


async def test_pulls_walk_the_queue_and_start_again() -> None:
    status, result, requests = await run("pull", a_broker_with(3))
    offsets = [
        request["extFields"]["queueOffset"]
        for request, _ in requests
        if request["code"] == 11 and request["extFields"]["queueId"] == "1"
    ]
    assert status == 0
    assert result["messages"] == 3 * result["requests"]
    assert offsets[:4] == ["0", "3", "6", "0"]


async def test_pull_with_too_few_messages_is_a_failure() -> None:
    status, result, _ = await run("pull", a_broker_with(2))
    assert status == 1
    assert result["short_pulls"] > 0


class Queues:
    """A broker that keeps no more than how many messages were sent, oneway or not."""

    def __init__(self, *, loses: int = 0) -> None:
        self._count = -loses

    def answer(self, request: dict[str, Any], body: bytes) -> bytes:
        """Count a send; tell the count as the first queue's."""
        if request["code"] == 30:
            held = max(0, self._count) if request["extFields"]["queueId"] == "0" else 0
            ext = {"offset": str(held)}
            return frame({"code": 0, "opaque": request["opaque"], "extFields": ext})
        self._count += 1
        return b"" if request["flag"] & 2 else ok(request, body)


async def test_oneway_messages_are_counted_in_the_queues() -> None:
    status, result, requests = await run("oneway", Queues().answer)
    sent = [request for request, _ in requests if request["code"] == 310]
    unanswered = [request for request in sent if request["flag"] == 2]
    assert status == 0
    assert len(unanswered) == len(sent) / 2  # bursts of half a window, the last of each answered
    assert 0 < result["messages"] <= len(sent)


async def test_a_oneway_message_that_is_in_no_queue_is_lost() -> None:
    status, result, _ = await run("oneway", Queues(loses=3).answer, drain_s=0.2)
    assert status == 1
    assert result["lost"] == 3


async def test_a_half_message_is_committed_by_what_its_answer_says() -> None:
    counted = Queues()

    def answer(request: dict[str, Any], body: bytes) -> bytes:
        if request["code"] != 310:
            return counted.answer(request, body)
        ext = {"msgId": "7F0000010000276F" + "00000000000000FF", "queueOffset": "7"}
        ext["transactionId"] = (
            request["extFields"]["i"].split("\x02")[0].removeprefix("UNIQ_KEY\x01")
        )
        return frame({"code": 0, "opaque": request["opaque"], "extFields": ext})

    status, result, requests = await run("transaction", answer)
    halves = [request["extFields"] for request, _ in requests if request["code"] == 310]
    ends = [request["extFields"] for request, _ in requests if request["code"] == 37]
    assert status == 0
    assert result["messages"] > 0
    assert {half["f"] for half in halves} == {"4"}
    assert len(ends) == len(halves)
    assert {(end["tranStateTableOffset"], end["commitLogOffset"]) for end in ends} == {("7", "255")}
    assert len({end["transactionId"] for end in ends}) == len(ends)


LOG_OFFSET_LIKE_A_PROPERTY = 0x02610100


def a_filtering_broker(value: bytes) -> Answer:
    """Make a broker whose pulls bring a record with this property `a`, and only one."""

    def answer(request: dict[str, Any], body: bytes) -> bytes:
        offset = {30: "9", 31: "0"}.get(request["code"])
        if offset is not None:
            ext = {"offset": offset + "0"}
            return frame({"code": 0, "opaque": request["opaque"], "extFields": ext})
        head = struct.pack(">II20sQ", 100, 0xDAA320A7, b"", LOG_OFFSET_LIKE_A_PROPERTY).ljust(
            91, b"\0"
        )
        record = head + b"\2a\1" + value
        return frame({"code": 0, "opaque": request["opaque"]}, record.ljust(100, b"\0"))

    return answer


async def test_a_filter_may_bring_fewer_messages_than_asked_for() -> None:
    status, result, requests = await run("sql", a_filtering_broker(b"6"))
    assert status == 0
    assert result["messages"] == result["requests"]
    pulls = [request["extFields"] for request, _ in requests if request["code"] == 11]
    assert {(pull["expressionType"], pull["subscription"]) for pull in pulls} == {
        ("SQL92", "a > 5")
    }


async def test_a_message_that_the_filter_excludes_is_a_failure() -> None:
    status, result, _ = await run("sql", a_filtering_broker(b"5"))
    assert status == 1
    assert result["short_pulls"] > 0


async def test_each_popped_message_is_acknowledged_by_itself() -> None:
    def answer(request: dict[str, Any], body: bytes) -> bytes:
        if request["code"] == 200051:
            return ok(request, body)
        ext = {"popTime": "5", "invisibleTime": "60", "reviveQid": "1", "restNum": "9"}
        ext["startOffsetInfo"] = f"0 {request['extFields']['queueId']} 40"
        offsets = (40, 41, 42)
        records = [struct.pack(">IIIIIQ", 100, 0xDAA320A7, 0, 0, 0, each) for each in offsets]
        found = b"".join(record.ljust(100, b"\0") for record in records)
        return frame({"code": 0, "opaque": request["opaque"], "extFields": ext}, found)

    status, result, requests = await run("pop", answer)
    acks = [request["extFields"] for request, _ in requests if request["code"] == 200051]
    assert status == 0
    assert 0 < result["messages"] <= len(acks)
    assert {ack["extraInfo"] for ack in acks if ack["queueId"] == "1"} == {
        f"40 5 60 1 0 broker-a 1 {offset}" for offset in (40, 41, 42)
    }


async def test_a_group_that_popped_all_is_followed_by_another() -> None:
    groups: list[str] = []

    def answer(request: dict[str, Any], body: bytes) -> bytes:
        groups.append(request["extFields"]["consumerGroup"])
        return frame({"code": 210, "opaque": request["opaque"]})

    status, result, _ = await run("pop", answer)
    assert status == 1
    assert result["first_refusal"] == 210  # the second group found nothing either
    assert len(set(groups)) == len(groups)


async def test_a_parked_pull_must_bring_the_message_that_released_it() -> None:
    def answer(request: dict[str, Any], body: bytes) -> bytes:
        if request["code"] == 30:
            ext = {"offset": "0"}
            return frame({"code": 0, "opaque": request["opaque"], "extFields": ext})
        if request["code"] == 310:
            return ok(request, body)
        record = struct.pack(">IIIIIQ", 100, 0xDAA320A7, 0, 0, 0, 0).ljust(100, b"\0")
        return frame({"code": 0, "opaque": request["opaque"]}, record)

    status, result, _ = await run("longpull", answer)
    assert status == 1
    assert result["mismatched"] == 8  # nothing was sent yet


@pytest.mark.costly
async def test_sends_go_round_all_topics() -> None:
    _, _, requests = await run("single", ok, "--topics", "3", "--queues", "1")
    topics = [request["extFields"]["b"] for request, _ in requests]
    assert set(topics) == {"LoadTest-0", "LoadTest-1", "LoadTest-2"}


async def test_a_pace_is_kept_whatever_is_answered() -> None:
    began_s = time.monotonic()
    status, result, _ = await run("single", ok, "--rate", "200")
    assert status == 0
    # What was due in a pause before the measurement began is sent, and counts, in it.
    assert result["messages"] <= 200 * (time.monotonic() - began_s) + 1


async def test_what_waits_for_a_window_is_late_from_when_it_was_due() -> None:
    words = ("--rate", "1000", "--seconds", "0.5", "--drain", "0.1")
    _, result, requests = await run_once("single", lambda request, body: b"", *words)
    assert len(requests) == 8  # the windows are full, and stay so
    assert result["unanswered"] == 8


async def test_windows_shrink_to_what_may_be_in_flight() -> None:
    words = ("--body", str(16 << 20), "--seconds", "0.1", "--drain", str(HANG_S))
    _, result, _ = await run_once("single", ok, *words)
    assert result["in_flight"] == 1
