"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

import errno
from typing import Any

import pytest

from rockhopper.protocol.grpc_v2.codes import Code
from tests.support.features import pop_of
from tests.support.grpc_client import GrpcBroker, GrpcClient, receiving, request
from tests.support.peers import Clock


async def handle_of(served: GrpcBroker, client: GrpcClient, **changes: Any) -> str:
    """The handle of a message that was received just now."""
    served.put("t", b"hello")
    answer = await client.ask_for("ReceiveMessage", receiving("t", **changes)).ended()
    return str(answer.messages[1].message.system_properties.receipt_handle)


def acknowledging(*handles: str, topic: str = "t") -> Any:
    made = request("AckMessage", topic=topic, group="g")
    for handle in handles:
        made.entries.add(message_id="ID", receipt_handle=handle)
    return made


def lag_of(served: GrpcBroker) -> int:
    """How many messages of the queue the group has not settled."""
    lane = pop_of(served).lanes.get("g", "t", 0)
    assert lane is not None
    return len(lane.entries)


async def test_an_acknowledged_message_is_settled(served: GrpcBroker, client: GrpcClient) -> None:
    handle = await handle_of(served, client)
    reply = await client.ask("AckMessage", acknowledging(handle))
    assert (reply.status.code, reply.entries[0].status.code) == (Code.OK, Code.OK)
    assert lag_of(served) == 0


async def test_each_handle_has_its_own_result(served: GrpcBroker, client: GrpcClient) -> None:
    handle = await handle_of(served, client)
    reply = await client.ask("AckMessage", acknowledging(handle, "nonsense"))
    assert reply.status.code == Code.MULTIPLE_RESULTS
    assert [entry.status.code for entry in reply.entries] == [
        Code.OK,
        Code.INVALID_RECEIPT_HANDLE,
    ]


@pytest.mark.parametrize("is_full", [False, True])
async def test_the_acknowledgements_of_a_turn_are_written_together(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    handles = [await handle_of(served, client) for _ in range(3)]
    journal = pop_of(served).lanes.journal
    writes, append = [], journal.append

    def count(data: bytes) -> None:
        writes.append(data)
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(data)

    monkeypatch.setattr(journal, "append", count)
    texts = [*handles, handles[0], "nonsense"]
    answers = [
        each.ask_for("AckMessage", acknowledging(text))
        for text, each in zip(texts, [client, GrpcClient(served.gateway)] * 3, strict=False)
    ]
    assert (writes, lag_of(served)) == ([], 3)
    codes = [(await answer.ended()).messages[0].status.code for answer in answers]
    code = Code.INTERNAL_SERVER_ERROR if is_full else Code.OK
    assert codes == [code] * 4 + [Code.INVALID_RECEIPT_HANDLE]
    assert (len(writes), lag_of(served)) == (1, 3 if is_full else 0)


async def test_what_follows_acknowledgements_in_a_turn_sees_them(
    served: GrpcBroker, client: GrpcClient
) -> None:
    handle = await handle_of(served, client)
    acked = client.ask_for("AckMessage", acknowledging(handle))
    changing = request(
        "ChangeInvisibleDuration",
        topic="t",
        group="g",
        receipt_handle=handle,
        invisible_duration_ms=60_000,
    )
    changed = client.ask_for("ChangeInvisibleDuration", changing)
    assert (await acked.ended()).messages[0].status.code == Code.OK
    assert (await changed.ended()).messages[0].status.code == Code.INVALID_RECEIPT_HANDLE


async def test_a_handle_that_has_expired_settles_nothing(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    handle = await handle_of(served, client)
    clock.advance(30_000)
    reply = await client.ask("AckMessage", acknowledging(handle))
    assert reply.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    assert lag_of(served) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda handle: handle.replace("broker-a", "broker-b"), Code.BAD_REQUEST),
        (lambda handle: " ".join(handle.split(" ")[:7]), Code.INVALID_RECEIPT_HANDLE),
        (lambda handle: handle.replace("broker-a 0", "broker-a x"), Code.INVALID_RECEIPT_HANDLE),
        (lambda _handle: "", Code.INVALID_RECEIPT_HANDLE),
    ],
)
async def test_what_is_no_handle_of_this_broker_is_refused(
    served: GrpcBroker, client: GrpcClient, change: Any, code: Code
) -> None:
    handle = change(await handle_of(served, client))
    made = request(
        "ChangeInvisibleDuration",
        topic="t",
        group="g",
        receipt_handle=handle,
        invisible_duration_ms=60_000,
    )
    reply = await client.ask("ChangeInvisibleDuration", made)
    assert reply.status.code == code


async def test_a_changed_message_has_another_handle(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    handle = await handle_of(served, client)

    def changing(text: str, invisible_ms: int) -> Any:
        return request(
            "ChangeInvisibleDuration",
            topic="t",
            group="g",
            receipt_handle=text,
            invisible_duration_ms=invisible_ms,
        )

    clock.advance(1000)
    reply = await client.ask("ChangeInvisibleDuration", changing(handle, 60_000))
    assert reply.status.code == Code.OK
    old = await client.ask("ChangeInvisibleDuration", changing(handle, 60_000))
    assert old.status.code == Code.INVALID_RECEIPT_HANDLE
    clock.advance(30_000)
    acked = await client.ask("AckMessage", acknowledging(reply.receipt_handle))
    assert acked.status.code == Code.OK
    assert lag_of(served) == 0
    too_long = changing(reply.receipt_handle, 43_200_001)
    refused = await client.ask("ChangeInvisibleDuration", too_long)
    assert refused.status.code == Code.ILLEGAL_INVISIBLE_TIME


async def test_a_message_that_is_not_wanted_now_is_visible_at_once(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    made = request(
        "ChangeInvisibleDuration",
        topic="t",
        group="g",
        receipt_handle=await handle_of(served, client),
    )
    assert (await client.ask("ChangeInvisibleDuration", made)).status.code == Code.OK
    lane = pop_of(served).lanes.get("g", "t", 0)
    assert lane is not None
    assert lane.entries[0].visible_ms <= clock() + 1


async def test_a_handle_of_another_topic_settles_nothing(
    served: GrpcBroker, client: GrpcClient
) -> None:
    handle = await handle_of(served, client)
    reply = await client.ask("AckMessage", acknowledging(handle, topic="fifo"))
    assert reply.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
    assert lag_of(served) == 1


async def test_a_message_may_be_given_up_late(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    handle = await handle_of(served, client)
    clock.advance(30_000)
    made = request("ForwardMessageToDeadLetterQueue", topic="t", group="g", receipt_handle=handle)
    reply = await client.ask("ForwardMessageToDeadLetterQueue", made)
    assert reply.status.code == Code.OK
    assert served.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_a_message_given_up_is_among_the_dead_letters(
    served: GrpcBroker, client: GrpcClient
) -> None:
    handle = await handle_of(served, client)
    made = request("ForwardMessageToDeadLetterQueue", topic="t", group="g", receipt_handle=handle)
    reply = await client.ask("ForwardMessageToDeadLetterQueue", made)
    assert reply.status.code == Code.OK
    assert served.store.reading.queue_range("%DLQ%g", 0) == (0, 1)
    assert lag_of(served) == 0


async def test_another_message_at_its_place_is_not_given_up(
    served: GrpcBroker, client: GrpcClient
) -> None:
    handle = await handle_of(served, client)
    made = request(
        "ForwardMessageToDeadLetterQueue",
        topic="t",
        group="g",
        receipt_handle=handle,
        message_id="01" + "AB" * 16,
    )
    reply = await client.ask("ForwardMessageToDeadLetterQueue", made)
    assert reply.status.code != Code.OK
    assert "now holds another message" in reply.status.message
    assert served.store.reading.queue_range("%DLQ%g", 0) == (0, 0)


async def test_an_id_that_is_no_messages_is_as_good_as_none(
    served: GrpcBroker, client: GrpcClient
) -> None:
    made = request(
        "ForwardMessageToDeadLetterQueue",
        topic="t",
        group="g",
        receipt_handle=await handle_of(served, client),
        message_id="ID",
    )
    reply = await client.ask("ForwardMessageToDeadLetterQueue", made)
    assert reply.status.code == Code.OK
    assert served.store.reading.queue_range("%DLQ%g", 0) == (0, 1)


async def test_a_forged_handle_reads_no_other_topic(served: GrpcBroker, client: GrpcClient) -> None:
    secret = served.put("tx", b"not yours")
    handle = (await handle_of(served, client)).rsplit(" ", 1)[0]
    made = request(
        "ForwardMessageToDeadLetterQueue",
        topic="t",
        group="g",
        receipt_handle=f"{handle} {secret.commit_log_offset}",
    )
    reply = await client.ask("ForwardMessageToDeadLetterQueue", made)
    assert reply.status.code != Code.OK
    assert served.store.reading.queue_range("%DLQ%g", 0) == (0, 0)


async def test_a_handle_without_a_place_cannot_be_given_up(
    served: GrpcBroker, client: GrpcClient
) -> None:
    handle = (await handle_of(served, client)).rsplit(" ", 1)[0]
    made = request("ForwardMessageToDeadLetterQueue", topic="t", group="g", receipt_handle=handle)
    reply = await client.ask("ForwardMessageToDeadLetterQueue", made)
    assert reply.status.code == Code.INVALID_RECEIPT_HANDLE
