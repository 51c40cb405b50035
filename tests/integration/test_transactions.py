"""Transactions over real sockets: every branch of 37, 39 and 323, as foreign producers use them."""

import time

import pytest

from rockhopper.broker.app import Broker
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.names import TIMER_TOPIC
from rockhopper.protocol.store.message_codec import decode_message
from tests.support.direct import pull
from tests.support.features import transactions_of
from tests.support.raw_peer import until
from tests.support.transactions import (
    COMMIT,
    GROUP,
    HALF_TOPIC,
    HOLD_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    UNKNOWN,
    Half,
    checked,
    end_fields,
    half_fields,
    half_of,
    producer_heartbeat,
)
from tests.support.wire import WireClient

SOON = {"transactionTimeOut": "1", "transactionCheckInterval": "1"}


async def send_half(
    client: WireClient, key: str = "K1", topic: str = "orders", **properties: str
) -> Half:
    fields = half_fields(topic, key, born_ms=time.time_ns() // 1_000_000, **properties)
    return half_of(await client.ask(Code.SEND_MESSAGE_V2, fields, b"pay " + key.encode()))


async def end(client: WireClient, half: Half, how: int, **changes: object) -> Command:
    return await client.ask(Code.END_TRANSACTION, end_fields(half, how, **changes))


def bodies(messages: list[StoredMessage]) -> list[bytes]:
    return [message.body for message in messages]


async def test_a_committed_message_is_delivered_as_rocketmq_writes_it(
    broker: Broker, client: WireClient
) -> None:
    half = await send_half(client, TAGS="paid", KEYS="o-1", region="eu")
    assert half.offset == 0
    assert half.unique_key == "K1"
    assert await pull(broker.address, "orders") == []

    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS

    (message,) = await pull(broker.address, "orders")
    assert message.body == b"pay K1"
    assert message.queue_id == 0
    assert message.sys_flag & 0xC == 8
    assert message.prepared_transaction_offset == half.log_offset
    properties = message.properties
    assert properties["TRAN_MSG"] == "true"
    assert "REAL_TOPIC" not in properties
    assert "REAL_QID" not in properties
    assert "TRANSACTION_CHECK_TIMES" not in properties
    assert properties["__transactionId__"] == properties["UNIQ_KEY"] == "K1"
    assert (properties["TAGS"], properties["KEYS"], properties["region"]) == ("paid", "o-1", "eu")
    (op,) = await pull(broker.address, OP_TOPIC)
    assert (op.body, op.tags) == (b"0,", "d")
    (stored,) = await pull(broker.address, HALF_TOPIC)
    assert stored.sys_flag & 0xC == 0


async def test_a_message_that_is_rolled_back_is_not_delivered(
    broker: Broker, client: WireClient
) -> None:
    half = await send_half(client)
    kept = await send_half(client, "K2")
    assert (await end(client, half, ROLLBACK)).code == ResponseCode.SUCCESS
    assert (await end(client, kept, COMMIT)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"pay K2"]
    assert bodies(await pull(broker.address, OP_TOPIC)) == [b"0,", b"1,"]
    assert len(transactions_of(broker).halves) == 0


async def test_an_end_that_is_repeated_changes_nothing(broker: Broker, client: WireClient) -> None:
    committed, rolled_back = await send_half(client), await send_half(client, "K2")
    for _ in range(3):
        assert (await end(client, committed, COMMIT)).code == ResponseCode.SUCCESS
        assert (await end(client, rolled_back, ROLLBACK)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]
    assert len(await pull(broker.address, OP_TOPIC)) == 2


async def test_an_end_that_contradicts_the_first_is_refused(
    broker: Broker, client: WireClient
) -> None:
    committed, rolled_back = await send_half(client), await send_half(client, "K2")
    await end(client, committed, COMMIT)
    await end(client, rolled_back, ROLLBACK)
    assert (await end(client, committed, ROLLBACK)).code == ResponseCode.ILLEGAL_OPERATION
    assert (await end(client, rolled_back, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION
    assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


async def test_oneway_ends_count(broker: Broker, client: WireClient) -> None:
    half = await send_half(client)
    client.send_oneway(Code.END_TRANSACTION, end_fields(half, COMMIT))
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


async def test_who_does_not_know_yet_is_not_answered(broker: Broker, client: WireClient) -> None:
    half = await send_half(client)
    unanswered = client.send(Code.END_TRANSACTION, end_fields(half, UNKNOWN))
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    assert not unanswered.done()
    assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


WRONG = {
    "group": ({"producerGroup": "others"}, 1, "The producer group wrong"),
    "half queue offset": (
        {"tranStateTableOffset": 7},
        1,
        "The transaction state table offset wrong",
    ),
    "log offset": ({"commitLogOffset": 1}, 1, "Find prepared transaction message failed"),
    "log offset beyond": (
        {"commitLogOffset": 1 << 40},
        1,
        "Find prepared transaction message failed",
    ),
    "log offset below": ({"commitLogOffset": -5}, 1, "Find prepared transaction message failed"),
    "no group": ({"producerGroup": ""}, 1, "The producer group wrong"),
}


@pytest.mark.parametrize(("changes", "code", "remark"), WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
async def test_an_end_of_something_else_is_refused_and_the_half_message_stays_open(
    broker: Broker,
    client: WireClient,
    how: int,
    changes: dict[str, object],
    code: int,
    remark: str,
) -> None:
    half = await send_half(client)
    answer = await end(client, half, how, **changes)
    assert (answer.code, answer.remark) == (code, remark)
    assert len(transactions_of(broker).halves) == 1
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


async def test_a_plain_message_cannot_be_committed(broker: Broker, client: WireClient) -> None:
    fields = half_fields("orders", "K1")
    fields |= {"f": "0", "i": f"UNIQ_KEY\x01K1\x02PGROUP\x01{GROUP}\x02"}
    plain = half_of(await client.ask(Code.SEND_MESSAGE_V2, fields, b"plain"))
    answer = await end(client, plain, COMMIT)
    assert answer.remark == "Find prepared transaction message failed"
    assert len(await pull(broker.address, "orders")) == 1


async def test_an_end_after_the_immunity_is_refused_unless_it_answers_a_check(
    broker: Broker, client: WireClient
) -> None:
    fields = half_fields("orders", "K1", born_ms=1000, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    half = half_of(await client.ask(Code.SEND_MESSAGE_V2, fields, b"late"))
    for how in (COMMIT, ROLLBACK):
        assert (await end(client, half, how)).code == ResponseCode.ILLEGAL_OPERATION
    answer = await end(client, half, COMMIT, fromTransactionCheck="true")
    assert answer.code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"late"]


async def test_the_prepared_flag_alone_makes_a_half_message(
    broker: Broker, client: WireClient
) -> None:
    fields = half_fields("orders", "K1")
    fields["i"] = "UNIQ_KEY\x01K1\x02"
    half = half_of(await client.ask(Code.SEND_MESSAGE_V2, fields, b"flagged"))
    assert await pull(broker.address, "orders") == []
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"flagged"]


async def test_the_property_alone_makes_a_half_message(broker: Broker, client: WireClient) -> None:
    fields = half_fields("orders", "K0")
    assert (await client.ask(Code.SEND_MESSAGE_V2, fields | {"f": "0", "i": ""}, b"x")).code == 0
    half = half_of(await client.ask(Code.SEND_MESSAGE_V2, fields | {"f": "0"}, b"marked"))
    assert bodies(await pull(broker.address, "orders")) == [b"x"]
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"x", b"marked"]


async def test_everything_open_can_be_rolled_back_at_once(
    broker: Broker, client: WireClient
) -> None:
    halves = [await send_half(client, f"K{number}") for number in range(5)]
    await end(client, halves[2], COMMIT)
    assert len(transactions_of(broker).halves) == 4
    transactions_of(broker).purge()
    assert len(transactions_of(broker).halves) == 0
    assert (await end(client, halves[0], COMMIT)).code == ResponseCode.ILLEGAL_OPERATION
    assert bodies(await pull(broker.address, "orders")) == [b"pay K2"]


async def test_a_message_that_a_consumer_sends_back_is_no_half_message(
    broker: Broker, client: WireClient
) -> None:
    fields = half_fields("%RETRY%readers", "K1", DELAY="3") | {"j": "1"}
    assert (await client.ask(Code.SEND_MESSAGE_V2, fields, b"again")).code == 0
    (waiting,) = await pull(broker.address, "SCHEDULE_TOPIC_XXXX", queue_id=2)
    assert waiting.body == b"again"
    assert waiting.sys_flag & 0xC == 0
    assert len(transactions_of(broker).halves) == 0


async def test_the_checks_of_a_send_hold_for_the_real_topic(
    broker: Broker, client: WireClient
) -> None:
    await broker.stop()
    async with Broker.temporary({"autoCreateTopic": "off"}) as strict:
        async with WireClient(strict.address) as client:
            answer = await client.ask(Code.SEND_MESSAGE_V2, half_fields("orders", "K1"), b"x")
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            strict.tables.topics.create_on_lookup("orders")
            assert len(transactions_of(strict).halves) == 0


async def test_half_messages_can_be_refused_while_open_ones_end(
    broker: Broker, client: WireClient
) -> None:
    half = await send_half(client)
    change = b"rejectTransactionMessage=true"
    assert (await client.ask(Code.UPDATE_BROKER_CONFIG, body=change)).code == 0
    answer = await client.ask(Code.SEND_MESSAGE_V2, half_fields("orders", "K2"), b"x")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS


async def test_a_commit_to_a_deleted_topic_waits_for_the_topic(
    broker: Broker, client: WireClient
) -> None:
    half = await send_half(client)
    assert (await client.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == 0
    answer = await end(client, half, COMMIT)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert len(transactions_of(broker).halves) == 1
    await send_half(client, "K2")
    assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


async def test_a_delay_begins_at_the_commit(broker: Broker, client: WireClient) -> None:
    half = await send_half(client, DELAY="5")
    assert await pull(broker.address, "SCHEDULE_TOPIC_XXXX", queue_id=4) == []
    for _ in range(2):
        assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    (waiting,) = await pull(broker.address, "SCHEDULE_TOPIC_XXXX", queue_id=4)
    assert waiting.prepared_transaction_offset == half.log_offset
    assert await pull(broker.address, "orders") == []


async def test_a_delayed_commit_arrives(broker: Broker, client: WireClient) -> None:
    await broker.stop()
    settings = {"messageDelayLevel": "1s 2s"}
    async with Broker.temporary(settings) as quick, WireClient(quick.address) as client:
        half = await send_half(client, DELAY="1")
        await end(client, half, COMMIT)
        message = await _long_pull(client, "orders")
        assert message.body == b"pay K1"


async def test_a_time_of_delivery_counts_from_the_commit_on(
    broker: Broker, client: WireClient
) -> None:
    later_ms = time.time_ns() // 1_000_000 + 3_600_000
    half = await send_half(client, TIMER_DELIVER_MS=str(later_ms))
    assert await pull(broker.address, TIMER_TOPIC) == []
    for _ in range(2):
        assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
    (waiting,) = await pull(broker.address, TIMER_TOPIC)
    assert waiting.prepared_transaction_offset == half.log_offset
    assert await pull(broker.address, "orders") == []


async def _long_pull(client: WireClient, topic: str) -> StoredMessage:
    fields = {
        "consumerGroup": "tests",
        "topic": topic,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "0",
    }
    answer = await client.ask(Code.PULL_MESSAGE, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode_message(answer.body)


async def test_a_silent_producer_is_asked_and_its_answer_counts() -> None:
    async with Broker.temporary(SOON) as broker, WireClient(broker.address) as client:
        await client.ask(Code.HEART_BEAT, body=producer_heartbeat("p1"))
        half = await send_half(client, TAGS="paid")

        push = await client.next_push()

        assert checked(push) == half
        assert push.ext is not None
        assert push.ext["topic"] == HALF_TOPIC
        assert push.ext["msgId"] == "K1"
        assert push.ext["bname"] == broker.config.broker_name
        message = decode_message(push.body)
        assert (message.topic, message.queue_id) == ("orders", 0)
        assert (message.body, message.tags) == (b"pay K1", "paid")
        assert message.properties["PGROUP"] == GROUP
        answer = await end(client, checked(push), COMMIT, fromTransactionCheck="true")
        assert answer.code == ResponseCode.SUCCESS
        (final,) = await pull(broker.address, "orders")
        assert final.body == b"pay K1"
        assert int(final.properties["TRANSACTION_CHECK_TIMES"]) >= 1


async def test_a_producer_that_comes_back_is_found_by_its_group() -> None:
    async with Broker.temporary(SOON) as broker:
        async with WireClient(broker.address) as first:
            await first.ask(Code.HEART_BEAT, body=producer_heartbeat("p1"))
            half = await send_half(first)
        async with WireClient(broker.address) as second:
            await second.ask(Code.HEART_BEAT, body=producer_heartbeat("p1"))
            assert checked(await second.next_push()) == half
            await end(second, half, ROLLBACK, fromTransactionCheck="true")
        assert await pull(broker.address, "orders") == []
        assert len(transactions_of(broker).halves) == 0


async def test_producers_of_the_group_are_asked_in_turn() -> None:
    async with Broker.temporary(SOON | {"transactionCheckMax": "1000"}) as broker:
        async with WireClient(broker.address) as one, WireClient(broker.address) as two:
            for client, name in ((one, "p1"), (two, "p2")):
                await client.ask(Code.HEART_BEAT, body=producer_heartbeat(name))
            half = await send_half(one)
            for client in (one, two, one, two):
                assert checked(await client.next_push()) == half


async def test_what_nobody_decides_is_held_until_an_operator_resumes_it() -> None:
    settings = SOON | {"transactionCheckMax": "3"}
    async with Broker.temporary(settings) as broker, WireClient(broker.address) as client:
        await client.ask(Code.HEART_BEAT, body=producer_heartbeat("p1"))
        half = await send_half(client)
        for times in ("1", "2", "3"):
            push = await client.next_push()
            assert decode_message(push.body).properties["TRANSACTION_CHECK_TIMES"] == times
        await until(lambda: HOLD_TOPIC in broker.tables.topics)
        held = await _long_pull(client, HOLD_TOPIC)
        assert held.body == b"pay K1"
        assert held.properties["REAL_TOPIC"] == "orders"
        assert HOLD_TOPIC in broker.tables.topics.system_topics()
        assert len(transactions_of(broker).halves) == 0

        wrong = await client.ask(Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": half.message_id})
        assert wrong.code == ResponseCode.SYSTEM_ERROR
        assert HOLD_TOPIC in (wrong.remark or "")
        resumed = await client.ask(
            Code.RESUME_CHECK_HALF_MESSAGE, {"topic": HOLD_TOPIC, "msgId": held.offset_message_id}
        )
        assert resumed.code == ResponseCode.SUCCESS
        again = checked(await client.next_push())
        assert again.offset == 1
        await end(client, again, COMMIT, fromTransactionCheck="true")
        assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]
        late = await client.ask(Code.RESUME_CHECK_HALF_MESSAGE, {"msgId": held.offset_message_id})
        assert late.code == ResponseCode.SYSTEM_ERROR


async def test_a_late_commit_of_a_held_transaction_counts_once() -> None:
    settings = SOON | {"transactionCheckMax": "1"}
    async with Broker.temporary(settings) as broker, WireClient(broker.address) as client:
        await client.ask(Code.HEART_BEAT, body=producer_heartbeat("p1"))
        half = await send_half(client)
        await until(lambda: transactions_of(broker).check_back.held_count == 1)
        for _ in range(2):
            assert (await end(client, half, COMMIT)).code == ResponseCode.SUCCESS
        assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


async def test_under_sync_flush_answers_wait_for_the_disk() -> None:
    settings = {"flushDiskType": "SYNC_FLUSH"}
    async with Broker.temporary(settings) as broker, WireClient(broker.address) as client:
        half = await send_half(client)
        assert broker.store.log.flushed_offset == broker.store.log.written_offset
        first = client.send(Code.END_TRANSACTION, end_fields(half, COMMIT))
        repeated = client.send(Code.END_TRANSACTION, end_fields(half, COMMIT))
        assert (await first).code == ResponseCode.SUCCESS
        assert broker.store.log.flushed_offset == broker.store.log.written_offset
        assert (await repeated).code == ResponseCode.SUCCESS
        assert bodies(await pull(broker.address, "orders")) == [b"pay K1"]


async def test_metrics_count_transactions(broker: Broker, client: WireClient) -> None:
    await end(client, await send_half(client), COMMIT)
    await end(client, await send_half(client, "K2"), ROLLBACK)
    await send_half(client, "K3")
    page = (await broker.metrics()).body.decode()
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    values = {line.split("{")[0]: line.rsplit(" ", 1)[1] for line in lines}
    assert values["rocketmq_half_messages"] == "1.0"
    assert values["rocketmq_commit_messages_total"] == "1.0"
    assert values["rocketmq_rollback_messages_total"] == "1.0"
