"""SendMessage, EndTransaction and RecallMessage."""

import errno
import gzip
from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.activities import producing
from rockhopper.broker.gateways.grpc.service import CALLS_PER_PASS_MAX
from rockhopper.broker.kernel.send.send_request import PlainSend, Send
from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.features import needs, transactions_of
from tests.support.grpc_client import (
    GrpcBroker,
    GrpcClient,
    add_message,
    request,
    sending,
    settings_of_producer,
)
from tests.support.peers import Clock


def stored(served: GrpcBroker, topic: str) -> list[Any]:
    """All messages of a topic."""
    found = []
    for queue_id in range(4):
        low, high = served.store.reading.queue_range(topic, queue_id)
        for offset in range(low, high):
            result = served.store.reading.get_message(topic, queue_id, offset, 1)
            found.append(decode_message(result.body))
    return found


async def test_a_message_is_stored_with_all_that_its_producer_says(
    served: GrpcBroker, client: GrpcClient
) -> None:
    made = sending(
        "t", b"body", "ID7", tag="red", keys=["k1", "k2"], trace_context="00-1", priority=2
    )
    message = made.messages[0]
    message.user_properties["colour"] = "blue"
    message.system_properties.born_timestamp.FromMilliseconds(1_600_000_000_000)
    del message.system_properties.keys[:]
    message.system_properties.keys.extend(["k1", "k2"])
    message.system_properties.ClearField("priority")
    reply = await client.ask("SendMessage", made)
    assert (reply.status.code, reply.entries[0].message_id) == (Code.OK, "ID7")
    (found,) = stored(served, "t")
    assert (found.body, found.tags, found.keys, found.message_id) == (
        b"body",
        "red",
        ["k1", "k2"],
        "ID7",
    )
    assert found.properties["colour"] == "blue"
    assert found.properties["TRACE_CONTEXT"] == "00-1"
    assert found.properties["__BORNHOST"] == "127.0.0.1"
    assert found.born_time_ms == 1_600_000_000_000


@pytest.mark.parametrize("topic", ["t", "fifo", "nowhere", "%RETRY%g"])
async def test_compiled_code_stores_and_answers_as_python_does(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    found, replies = [], []
    for read_send in (producing.read_send, None):
        monkeypatch.setattr(producing, "read_send", read_send)
        reply = await client.ask("SendMessage", sending(topic, b"x", "ID", tag="red", keys=["k"]))
        for entry in reply.entries:
            entry.offset = 0
        replies.append(reply)
        found.append(
            [
                (message.body, message.properties, message.born_time_ms, message.sys_flag)
                for message in stored(served, "t")
            ]
        )
    assert replies[0] == replies[1]
    assert found[1] == found[0] * 2
    assert len(found[0]) == (topic == "t")


@pytest.mark.skipif(producing.read_send is None, reason="it is not compiled")
async def test_only_sends_to_plain_topics_are_read_by_compiled_code(
    client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The permission for a topic of a group is another one.
    read: list[str] = []

    def note(_producing: Any, _call: Any, send: PlainSend) -> bool:
        read.append(send.topic)
        return False

    monkeypatch.setattr(producing.Producing, "send_plain", note)
    for topic in ("t", "fifo", "%RETRY%g", "new"):
        await client.ask("SendMessage", sending(topic, b"x", "ID"))
    assert read == ["t"]


async def test_the_sends_of_all_connections_in_a_turn_are_written_together(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.ask("SendMessage", sending("t", b"first", "ID0"))
    commits, commit = [], served.store.commit

    def count() -> int:
        commits.append(1)
        return commit()

    monkeypatch.setattr(served.store, "commit", count)
    answers = [
        each.ask_for("SendMessage", sending("t", b"x", f"ID{number}"))
        for number, each in enumerate((client, GrpcClient(served.gateway), client), 1)
    ]
    assert (commits, [answer.is_ended for answer in answers]) == ([], [False] * 3)
    for answer in answers:
        assert (await answer.ended()).messages[0].status.code == Code.OK
    assert len(commits) == 1
    assert {each.message_id for each in stored(served, "t")} == {"ID0", "ID1", "ID2", "ID3"}


async def test_a_long_pass_of_sends_does_not_wait_for_the_end_of_the_turn(
    served: GrpcBroker, client: GrpcClient
) -> None:
    answers = [
        client.ask_for("SendMessage", sending("t", b"x", f"ID{number}"))
        for number in range(CALLS_PER_PASS_MAX)
    ]
    assert len(stored(served, "t")) == CALLS_PER_PASS_MAX
    for answer in answers:
        await answer.ended()


async def test_the_sends_of_a_connection_that_is_lost_in_the_turn_are_stored(
    served: GrpcBroker, client: GrpcClient
) -> None:
    other = GrpcClient(served.gateway)
    other.ask_for("SendMessage", sending("t", b"x", "ID1"))
    other.lose()
    await client.ask("SendMessage", sending("t", b"x", "ID2"))
    assert {each.message_id for each in stored(served, "t")} == {"ID1", "ID2"}


async def test_each_of_several_messages_has_its_own_result(
    served: GrpcBroker, client: GrpcClient
) -> None:
    made = sending("t", b"1", "A")
    add_message(made, "t", b"2", "B")
    reply = await client.ask("SendMessage", made)
    assert [entry.message_id for entry in reply.entries] == ["A", "B"]
    assert sorted(each.body for each in stored(served, "t")) == [b"1", b"2"]


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (request("SendMessage"), Code.MESSAGE_CORRUPTED),
        (sending("gone"), Code.TOPIC_NOT_FOUND),
        (sending(""), Code.ILLEGAL_TOPIC),
        (sending("%RETRY%g"), Code.ILLEGAL_TOPIC),
        (sending("t", b""), Code.MESSAGE_BODY_EMPTY),
        (sending("t", message_group="g"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sending("t", lite_topic="x"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (sending("fifo"), Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
async def test_what_cannot_be_sent_is_refused(client: GrpcClient, made: Any, code: Code) -> None:
    reply = await client.ask("SendMessage", made)
    assert reply.status.code == code, reply


async def test_what_cannot_be_written_is_refused(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> int:
        raise DiskFullError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(served.store.staging, "write", fail)
        reply = await client.ask("SendMessage", sending("t"))
    assert reply.status.code == Code.INTERNAL_SERVER_ERROR
    assert not reply.entries[0].message_id
    assert served.stats.put_failed == 1


async def test_what_was_stored_but_not_replicated_is_told_apart_from_what_was_refused(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = served.kernel.sender.stage

    def stage_first(send: Send) -> Any:
        if send.body != b"1":
            raise DiskFullError("the disk is full")
        return stage(send)

    monkeypatch.setattr(served.kernel.sender, "stage", stage_first)
    served.store.safe_point.replicate(0, timeout_ms=1)
    made = sending("t", b"1", "A")
    add_message(made, "t", b"2", "B")
    reply = await client.ask("SendMessage", made)
    assert [each.status.code for each in reply.entries] == [
        Code.SLAVE_PERSISTENCE_TIMEOUT,
        Code.INTERNAL_SERVER_ERROR,
    ]
    assert reply.status.code == Code.MULTIPLE_RESULTS


async def test_what_is_sent_is_there_for_whatever_is_asked_next(
    served: GrpcBroker, client: GrpcClient
) -> None:
    served.create_topic("one", queues=1)
    with client.in_one_read():
        sent = [client.ask_for("SendMessage", sending("one", message_id=f"ID{n}")) for n in (1, 2)]
        made = request("QueryOffset", query_offset_policy=1)
        made.message_queue.topic.name = "one"
        looked = client.ask_for("QueryOffset", made)
    assert (await looked.ended()).messages[0].offset == 2
    offsets = [(await each.ended()).messages[0].entries[0].offset for each in sent]
    assert offsets == [0, 1]


async def test_messages_of_two_topics_are_refused(served: GrpcBroker, client: GrpcClient) -> None:
    made = sending("t")
    add_message(made, "tx", b"2", "B")
    reply = await client.ask("SendMessage", made)
    assert reply.status.code == Code.MESSAGE_CORRUPTED
    assert stored(served, "t") == []


async def test_a_message_group_keeps_to_its_queue(served: GrpcBroker, client: GrpcClient) -> None:
    for number in range(6):
        await client.ask("SendMessage", sending("fifo", b"%d" % number, message_group="order-1"))
    assert {each.queue_id for each in stored(served, "fifo")} == {3}
    assert [each.body for each in stored(served, "fifo")] == [b"%d" % n for n in range(6)]


async def test_a_call_without_a_client_id_is_refused(client: GrpcClient) -> None:
    reply = await client.ask("SendMessage", sending("t"), client_id=" ")
    assert reply.status.code == Code.CLIENT_ID_REQUIRED


@needs("transactions")
async def test_a_gzip_body_is_stored_as_consumers_of_4_read_it(
    served: GrpcBroker, client: GrpcClient
) -> None:
    await client.ask("SendMessage", sending("t", gzip.compress(b"much " * 50), body_encoding=2))
    (found,) = stored(served, "t")
    assert found.decompressed_body() == b"much " * 50
    reply = await client.ask("SendMessage", sending("t", b"none", body_encoding=2))
    assert reply.status.code == Code.MESSAGE_CORRUPTED


@pytest.mark.parametrize(("resolution", "count"), [(1, 1), (2, 0)])
@needs("transactions")
async def test_a_transaction_ends_as_its_producer_says(
    served: GrpcBroker, client: GrpcClient, resolution: int, count: int
) -> None:
    sent = await client.ask("SendMessage", sending("tx", message_type=4))
    assert stored(served, "tx") == []
    ended = request(
        "EndTransaction",
        topic="tx",
        message_id="ID1",
        transaction_id=sent.entries[0].transaction_id,
        resolution=resolution,
    )
    for _ in range(2):
        reply = await client.ask("EndTransaction", ended)
        assert reply.status.code == Code.OK
    assert len(stored(served, "tx")) == count


@needs("transactions")
async def test_who_names_another_topic_ends_nothing(served: GrpcBroker, client: GrpcClient) -> None:
    sent = await client.ask("SendMessage", sending("tx", message_type=4))
    ended = request(
        "EndTransaction",
        topic="t",
        message_id="ID1",
        transaction_id=sent.entries[0].transaction_id,
        resolution=1,
    )
    reply = await client.ask("EndTransaction", ended)
    assert reply.status.code == Code.INVALID_TRANSACTION_ID
    assert "does not belong to topic t" in reply.status.message
    assert stored(served, "tx") == []


@needs("transactions")
async def test_a_lost_end_is_asked_for_by_the_producers_stream(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    stream_id, telemetry = client.begin("Telemetry")
    client.send(stream_id, settings_of_producer("tx"))
    await telemetry.until(1)
    sent = await client.ask("SendMessage", sending("tx", b"money", message_type=4))
    clock.advance(60_000)
    transactions_of(served).start()
    transactions_of(served).check_back.arm()
    *_, command = await telemetry.until(2)
    recovery = command.recover_orphaned_transaction_command
    assert recovery.transaction_id == sent.entries[0].transaction_id
    assert (recovery.message.body, recovery.message.topic.name) == (b"money", "tx")
    assert recovery.message.system_properties.message_id == "ID1"


@pytest.mark.parametrize("text", ["", "x", "ID1.zz.1", "a.b"])
@needs("transactions")
async def test_what_is_no_transaction_id_is_refused(client: GrpcClient, text: str) -> None:
    ended = request("EndTransaction", topic="tx", transaction_id=text, resolution=1)
    reply = await client.ask("EndTransaction", ended)
    assert reply.status.code == Code.INVALID_TRANSACTION_ID


async def test_a_delayed_message_is_recalled_once(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    served.kernel.scheduled.timers.open()
    sent = await client.ask("SendMessage", sending("later", delivery_timestamp_ms=clock() + 60_000))
    recall = request("RecallMessage", topic="later", recall_handle=sent.entries[0].recall_handle)
    reply = await client.ask("RecallMessage", recall)
    assert (reply.status.code, reply.message_id) == (Code.OK, "ID1")
    again = await client.ask("RecallMessage", recall)
    assert again.status.code == Code.PRECONDITION_FAILED


async def test_nobody_looks_further_ahead_than_a_day(client: GrpcClient, clock: Clock) -> None:
    made = sending("later", delivery_timestamp_ms=clock() + 86_400_001)
    reply = await client.ask("SendMessage", made)
    assert reply.status.code == Code.ILLEGAL_DELIVERY_TIME


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("born_timestamp", Code.BAD_REQUEST),
        ("delivery_timestamp", Code.ILLEGAL_DELIVERY_TIME),
    ],
)
@pytest.mark.parametrize(("seconds", "nanos"), [(0, 1_000_000_000), (1 << 62, 0)])
async def test_what_is_no_time_is_refused(
    client: GrpcClient, field: str, code: Code, seconds: int, nanos: int
) -> None:
    asked = sending("t")
    time = getattr(asked.messages[0].system_properties, field)
    time.seconds, time.nanos = seconds, nanos
    assert (await client.ask("SendMessage", asked)).status.code == code


async def test_a_message_that_would_begin_a_file_and_is_not_written_is_refused(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = served.store.log
    while log.room_end - log.written_offset > 4096:
        served.put("t", bytes(2000))
    before, write = len(stored(served, "t")), MappedFile.pwrite

    def pwrite(file: MappedFile, position: int, data: bytes) -> None:
        if position == 0:
            raise OSError(errno.EIO, "no")
        write(file, position, data)

    monkeypatch.setattr(MappedFile, "pwrite", pwrite)
    reply = await client.ask("SendMessage", sending("t", bytes(8000), "A"))
    assert reply.entries[0].status.code == reply.status.code != Code.OK
    assert len(stored(served, "t")) == before
