"""One connection: what is asked in odd ways, and what it costs to be rude."""

import asyncio
from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.connection import (
    FIRST_REQUEST_TIMEOUT_S,
    FRAME_TIMEOUT_S,
    HELD_BYTES_MAX,
    IDLE_TIMEOUT_S,
    STANDSTILL_TIMEOUT_S,
    UNREAD_BYTES_MAX,
    CallActivity,
    GrpcConnection,
)
from rockhopper.protocol.grpc_v2.framing import encode_frame
from rockhopper.protocol.http2.frames import PREFACE, FrameType, frame
from tests.support.features import needs, pop_of
from tests.support.grpc_client import GrpcBroker, GrpcClient, Pipe, receiving, request, sending


async def test_an_rpc_that_does_not_exist_is_unimplemented(client: GrpcClient) -> None:
    _, answer = client.begin("Nonsense")
    await answer.ended()
    assert answer.status == "12"
    assert "Nonsense" in answer.fields["grpc-message"]


@pytest.mark.parametrize("content", ["application/json", "", "application/grpc-web"])
async def test_what_is_no_grpc_gets_415(client: GrpcClient, content: str) -> None:
    stream_id, answer = client.begin("SendMessage", content_type=content)
    assert not answer.fields
    client.end(stream_id)
    await answer.ended()
    assert answer.fields[":status"] == "415"
    assert b"gRPC" in answer.body


@pytest.mark.parametrize("content", ["application/grpc+proto", "application/grpc; charset=x"])
async def test_spellings_of_grpc_are_understood(client: GrpcClient, content: str) -> None:
    reply = await client.ask("QueryRoute", request("QueryRoute", topic="t"), content_type=content)
    assert reply.message_queues


async def test_a_browser_is_told_what_this_is(served: GrpcBroker) -> None:
    pipe = Pipe("127.0.0.1")
    connection = GrpcConnection(served.gateway.server)
    connection.connection_made(pipe)  # type: ignore[arg-type]
    pipe.written.clear()
    connection.data_received(b"GET / HTTP/1.1\r\n\r\n")
    assert pipe.written.startswith(b"HTTP/1.1 400 ")
    assert pipe.is_closed


async def test_requests_that_cannot_be_read_fail_alone(client: GrpcClient) -> None:
    h2 = client
    for data, status in ((b"\0\0\0\0\x03abc", "13"), (b"\0\x7f\0\0\0", "8"), (b"\0\0", "13")):
        stream_id, answer = h2.begin("SendMessage")
        h2.send_raw(stream_id, data)
        await answer.ended()
        assert answer.status == status
    two = encode_frame(sending("t").SerializeToString())
    stream_id, answer = h2.begin("SendMessage")
    h2.send_raw(stream_id, two + two)
    assert (await answer.ended()).status == "13"
    stream_id, answer = h2.begin("SendMessage")
    h2.end(stream_id)
    assert (await answer.ended()).status == "13"
    reply = await client.ask("SendMessage", sending("t"))
    assert reply.entries[0].message_id == "ID1"


async def test_the_end_of_a_request_may_come_by_itself(client: GrpcClient) -> None:
    stream_id, answer = client.begin("QueryRoute")
    client.send(stream_id, request("QueryRoute", topic="t"))
    client.end(stream_id)
    assert (await answer.ended()).status == "0"


async def test_addresses_that_a_client_claims_count_for_nothing(
    served: GrpcBroker, client: GrpcClient
) -> None:
    fields = {"rpc_remote_address": "8.8.8.8:1", "x_mq_authorization_ak": "root"}
    await client.ask("SendMessage", sending("t"), **fields)
    queues = [
        queue_id for queue_id in range(4) if served.store.reading.queue_range("t", queue_id)[1]
    ]
    result = served.store.reading.get_message("t", queues[0], 0, 1)
    assert b"8.8.8.8" not in result.body


async def test_many_requests_of_one_read_are_served_in_turns(
    served: GrpcBroker, client: GrpcClient
) -> None:
    answers = [client.ask_for("SendMessage", sending("t", b"%d" % n)) for n in range(200)]
    for answer in answers:
        assert (await answer.ended()).status == "0"
    assert sum(served.store.reading.queue_range("t", queue_id)[1] for queue_id in range(4)) == 200


async def test_who_does_not_read_is_not_read_from(client: GrpcClient) -> None:
    client.connection.pause_writing()
    assert client.pipe.is_paused
    client.connection.resume_writing()
    assert not client.pipe.is_paused


async def test_answers_that_nobody_reads_end_the_connection(client: GrpcClient) -> None:
    client.connection.pause_writing()
    client.pipe.unread_bytes = UNREAD_BYTES_MAX + 1
    client.begin("Nonsense")
    await asyncio.sleep(0)
    assert client.pipe.is_closed


@needs("pop")
async def test_rude_clients_are_waited_for_so_long(client: GrpcClient) -> None:
    connection, activity = client.connection, client.connection.activity
    now_s = connection.loop.time()
    assert connection.find_timeout(now_s) is None
    late_s = now_s + FIRST_REQUEST_TIMEOUT_S + 1
    assert connection.find_timeout(late_s) == "the client sent no request"
    await client.ask("QueryRoute", request("QueryRoute", topic="t"))
    assert activity.last_call_s is not None
    assert connection.find_timeout(activity.last_call_s + IDLE_TIMEOUT_S + 1) == "idle"
    client.ask_for("ReceiveMessage", receiving("t"))
    assert connection.find_timeout(activity.last_call_s + IDLE_TIMEOUT_S + 1) is None
    connection.data_received(b"\0\0\x05")
    begun_s = activity.frame_begun_at_s
    assert begun_s is not None
    late_s = begun_s + FRAME_TIMEOUT_S + 1
    assert connection.find_timeout(late_s) == "a frame was not completed"
    connection.pause_writing()
    stalled_s = activity.stalled_at_s
    assert stalled_s is not None
    assert connection.find_timeout(stalled_s + STANDSTILL_TIMEOUT_S) is None
    assert connection.find_timeout(stalled_s + STANDSTILL_TIMEOUT_S + 1) is not None


@pytest.mark.parametrize(
    ("is_holding", "is_answering", "timeout_s", "reason"),
    [
        (True, True, FRAME_TIMEOUT_S, "a request was not completed"),
        (False, False, IDLE_TIMEOUT_S, "idle"),
        (False, True, 3600.0, None),
    ],
)
def test_an_incomplete_request_times_out_and_an_open_call_does_not(
    is_holding: bool, is_answering: bool, timeout_s: float, reason: str | None
) -> None:
    activity = CallActivity(0.0)
    activity.last_call_s = activity.held_at_s = 5.0
    holding: Any = {"is_holding": is_holding, "is_answering": is_answering}
    assert activity.find_timeout(5.0 + timeout_s, **holding) is None
    assert activity.find_timeout(5.1 + timeout_s, **holding) == reason


def test_the_time_of_a_frame_begins_with_its_first_bytes() -> None:
    activity = CallActivity(0.0)
    activity.last_call_s = 0.0
    activity.continue_frame(1.0)
    activity.continue_frame(20.0)
    reason = activity.find_timeout(1.1 + FRAME_TIMEOUT_S, is_holding=False, is_answering=False)
    assert reason == "a frame was not completed"


async def test_bodies_that_do_not_end_hold_no_more_than_so_much(client: GrpcClient) -> None:
    part_bytes = 4 << 20
    calls = [client.begin("SendMessage") for _ in range(HELD_BYTES_MAX // part_bytes + 1)]
    for stream_id, _ in calls:
        client.send_part(stream_id, part_bytes, part_bytes + 1)
    *held, (_, refused) = calls
    assert (await refused.ended()).status == "8"
    assert not any(answer.is_ended for _, answer in held)
    client.cancel(held[0][0])
    _, answer = client.begin("SendMessage")
    client.send_part(calls[-1][0] + 2, part_bytes - 1, part_bytes)
    assert not answer.is_ended
    reply = await client.ask("SendMessage", sending("t"))
    assert reply.entries[0].message_id == "ID1"
    now_s = client.connection.activity.held_at_s
    assert client.connection.find_timeout(now_s + FRAME_TIMEOUT_S) is None
    assert (
        client.connection.find_timeout(now_s + FRAME_TIMEOUT_S + 1) == "a request was not completed"
    )


@needs("pop")
async def test_an_error_of_the_peer_ends_the_connection_and_its_calls(
    served: GrpcBroker, client: GrpcClient
) -> None:
    client.ask_for("ReceiveMessage", receiving("t"))
    assert len(pop_of(served).polling) == 1
    client.connection.data_received(frame(FrameType.PUSH_PROMISE, 0, 1, b"\0" * 8))
    assert client.goaway
    assert client.pipe.is_closed
    assert len(pop_of(served).polling) == 0


async def test_silence_after_the_preface_is_no_request(served: GrpcBroker) -> None:
    connection = GrpcConnection(served.gateway.server)
    connection.connection_made(Pipe("127.0.0.1"))  # type: ignore[arg-type]
    connection.data_received(PREFACE)
    assert connection.activity.last_call_s is None
