"""The load generator believes no answer: what it counts as a failure, by servers that misbehave."""

import asyncio
import json
import shutil
import struct
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import load
from tests.support.hang import HANG_S

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


async def run(mode: str, answer: Answer, *, drain_s: float = HANG_S) -> Run:
    """Run the load generator against *answer*; return status, result and requests.

    For a moment, and for longer where a busy machine answers too little in that.
    """
    for seconds in (0.1, 1, 10, 60):
        status, result, requests = await run_for(seconds, mode, answer, drain_s)
        failures = ("refused", "mismatched", "unanswered", "short_pulls")
        if result["requests"] >= 16 or any(result[failure] for failure in failures):
            break
    return status, result, requests


async def run_for(seconds: float, mode: str, answer: Answer, drain_s: float) -> Run:
    """Run it for so long, and up to *drain_s* until all is answered."""
    requests: list[tuple[dict[str, Any], bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size, header_size = struct.unpack(">II", await reader.readexactly(8))
                header = json.loads(await reader.readexactly(header_size))
                body = await reader.readexactly(size - 4 - header_size)
                requests.append((header, body))
                writer.write(answer(header, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        process = await asyncio.create_subprocess_exec(
            *(str(load.build_loadgen()), "--mode", mode, "--connections", "2", "--in-flight", "4"),
            *("--port", str(server.sockets[0].getsockname()[1]), "--batch", "3"),
            *("--seconds", str(seconds), "--warm-up", "0", "--drain", str(drain_s)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, json.loads(output), requests


async def test_every_message_has_a_unique_key_of_its_own() -> None:
    status, result, requests = await run("single", ok)
    keys = [request["extFields"]["i"].split("\x02")[0] for request, _ in requests]
    assert status == 0
    assert result["requests"] > 0
    assert len(set(keys)) == len(keys)


async def test_every_message_of_a_batch_has_a_unique_key_of_its_own() -> None:
    status, result, requests = await run("batch", ok)
    keys = [part[:32] for _, body in requests for part in body.split(b"UNIQ_KEY\x01")[1:]]
    assert status == 0
    assert result["messages"] == 3 * result["requests"]
    assert len(keys) == 3 * len(requests)
    assert len(set(keys)) == len(keys)


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
