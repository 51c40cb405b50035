"""TransactionProducer: what brokers are told, and what it answers when they ask."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from rockhopper.client import (
    Message,
    MessageRejectedError,
    RequestRefusedError,
    RequestTimeoutError,
    TransactionProducer,
    TransactionState,
)
from rockhopper.client.network.reachability import Reachability
from rockhopper.client.network.session import Session
from rockhopper.client.received import ReceivedMessage
from rockhopper.client.transactions import Transaction
from rockhopper.protocol.codes import FLAG_ONEWAY
from rockhopper.protocol.command import Command, encode_command
from tests.support.held_clock import HeldClock
from tests.support.message_broker import MessageBroker
from tests.support.turns import until

ORDER = Message("orders", b"order 7", keys=["o-7"])
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Checks:
    """A check whose answers a test writes down."""

    def __init__(self) -> None:
        self.asked: list[ReceivedMessage] = []
        self.answer: TransactionState | str | Exception | None = TransactionState.COMMIT

    async def __call__(self, message: ReceivedMessage) -> TransactionState | str | None:
        self.asked.append(message)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
async def broker() -> AsyncIterator[MessageBroker]:
    async with MessageBroker() as broker:
        yield broker


@pytest.fixture
def checks() -> Checks:
    return Checks()


@pytest.fixture
async def producer(broker: MessageBroker, checks: Checks) -> AsyncIterator[TransactionProducer]:
    async with TransactionProducer("billing", check=checks, nameserver=broker.address) as producer:
        yield producer


async def test_a_clean_block_commits(producer: TransactionProducer, broker: MessageBroker) -> None:
    await producer.send("orders", b"a plain message")
    async with producer.transaction(ORDER) as transaction:
        fields, properties, body = broker.stored[1]
        assert broker.ended == []
    assert transaction.is_confirmed
    assert fields.sys_flag & 0xC == 4
    assert (properties["TRAN_MSG"], properties["PGROUP"], body) == ("true", "billing", b"order 7")
    (end,) = broker.ended
    assert end.commit_or_rollback == COMMIT
    assert (end.tran_state_table_offset, end.commit_log_offset) == (1, 100)
    assert end.msg_id == end.transaction_id == transaction.message_id == properties["UNIQ_KEY"]
    assert (end.producer_group, end.topic, end.broker_name) == ("billing", "orders", "a")
    assert not end.from_transaction_check


async def test_an_exception_leaves_the_outcome_to_the_check(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    with pytest.raises(KeyError):
        async with producer.transaction(ORDER):
            raise KeyError("account")
    await until(lambda: len(broker.ended) == 1)
    assert [end.commit_or_rollback for end in broker.ended] == [UNKNOWN]


async def test_a_roll_back_holds_if_the_block_raises_after_it(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    async def pay() -> None:
        async with producer.transaction(ORDER) as transaction:
            transaction.roll_back()
            raise KeyError("account")

    with pytest.raises(KeyError):
        await pay()
    assert [end.commit_or_rollback for end in broker.ended] == [ROLLBACK]


async def test_a_block_can_decide(producer: TransactionProducer, broker: MessageBroker) -> None:
    async with producer.transaction(ORDER) as transaction:
        transaction.roll_back()
    async with producer.transaction(ORDER) as transaction:
        transaction.leave_unknown()
    await broker.wait_for(37, 2)
    await until(lambda: len(broker.ended) == 2)
    assert [end.commit_or_rollback for end in broker.ended] == [ROLLBACK, UNKNOWN]
    assert broker.requests_of(37)[1].flag & FLAG_ONEWAY  # brokers do not answer to "unknown"
    assert not transaction.is_confirmed


@pytest.mark.parametrize(
    ("returned", "sent"),
    [(TransactionState.COMMIT, COMMIT), ("rollback", ROLLBACK), ("unknown", UNKNOWN)],
)
async def test_a_function_can_be_the_local_transaction(
    producer: TransactionProducer, broker: MessageBroker, returned: str, sent: int
) -> None:
    seen: list[str] = []

    async def local(transaction: Transaction) -> str:
        seen.append(transaction.message_id)
        return returned

    transaction = await producer.send_in_transaction(ORDER, local)
    assert seen == [transaction.message_id]
    await until(lambda: len(broker.ended) == 1)
    assert broker.ended[0].commit_or_rollback == sent


async def test_what_is_no_coroutine_function_is_refused_before_anything_is_stored(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    with pytest.raises(TypeError, match="the check None is not a coroutine function"):
        TransactionProducer("billing", check=None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is not a coroutine function"):
        TransactionProducer("billing", check=lambda _: "commit")  # type: ignore[arg-type,return-value]

    async def book() -> TransactionState:
        return TransactionState.COMMIT

    booking = book()
    with pytest.raises(TypeError, match="without calling it"):
        await producer.send_in_transaction(ORDER, booking)  # type: ignore[arg-type]
    booking.close()
    assert broker.stored == []


async def test_a_function_that_returns_nonsense_leaves_it_to_the_check(
    producer: TransactionProducer, broker: MessageBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def local(transaction: Transaction) -> str:
        return "comit"

    await producer.send_in_transaction(ORDER, local)
    await until(lambda: len(broker.ended) == 1)
    assert broker.ended[0].commit_or_rollback == UNKNOWN
    assert "'comit'" in caplog.text


async def test_a_local_transaction_that_is_no_coroutine_function_is_left_to_the_check(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    with pytest.raises(TypeError, match="`async def`; `check` decides about the message"):
        await producer.send_in_transaction(ORDER, lambda _: "commit")  # type: ignore[arg-type,return-value]
    await until(lambda: len(broker.ended) == 1)
    assert broker.ended[0].commit_or_rollback == UNKNOWN


async def test_the_block_does_not_run_when_the_half_message_was_not_stored(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    broker.on(310, lambda request: Command(16, remark="no transactions here"))
    with pytest.raises(RequestRefusedError, match="no transactions here"):
        async with producer.transaction(ORDER):
            pytest.fail("the block must not run")
    assert broker.ended == []


async def test_a_half_message_that_may_be_lost_is_rolled_back(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    def not_flushed(request: Command) -> Command:
        answer = broker.store(request)
        answer.code = 10
        return answer

    broker.on(310, not_flushed)
    with pytest.raises(RequestRefusedError, match="not stored safely"):
        async with producer.transaction(ORDER):
            pytest.fail("the block must not run")
    await until(lambda: len(broker.ended) == 1)
    assert broker.ended[0].commit_or_rollback == ROLLBACK


async def test_a_half_message_that_may_be_stored_is_not_sent_again(
    producer: TransactionProducer, broker: MessageBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HeldClock(monkeypatch)
    broker.on(310, lambda request: clock.advance(3))
    with pytest.raises(RequestTimeoutError):
        async with producer.transaction(ORDER):
            pytest.fail("the block must not run")
    assert len(broker.requests_of(310)) == 1


async def test_a_delayed_message_cannot_be_in_a_transaction(producer: TransactionProducer) -> None:
    with pytest.raises(MessageRejectedError, match="delayed"):
        async with producer.transaction(Message("orders", delay_s=0.005)):
            pytest.fail("the block must not run")


@pytest.mark.parametrize("answer", [None, Command(604, remark="too late")])
async def test_an_outcome_that_was_not_taken_is_left_to_the_check(
    producer: TransactionProducer,
    broker: MessageBroker,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    answer: Command | None,
) -> None:
    clock = HeldClock(monkeypatch)

    def answer_or_hang(request: Command) -> Command | None:
        if answer is None:
            clock.advance(3)
        return answer

    broker.on(37, answer_or_hang)
    async with producer.transaction(ORDER) as transaction:
        pass
    assert not transaction.is_confirmed
    assert "will check it" in caplog.text
    assert len(broker.requests_of(37)) == 1


async def test_an_outcome_that_cannot_have_arrived_is_told_again(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    async with producer.transaction(ORDER) as transaction:
        pool = producer.session.pool
        refused = 2
        dial = pool._dial

        async def flaky(address: str) -> object:
            nonlocal refused
            if refused:
                refused -= 1
                raise pool.unreachable(address, "refused the connection")
            return await dial(address)

        pool._dial = flaky  # type: ignore[method-assign, assignment]
        broker.drop_connections()
        await until(lambda: pool.existing(broker.address) is None)
    assert transaction.is_confirmed
    assert len(broker.ended) == 1


async def test_an_outcome_that_a_deposed_master_does_not_take_is_told_again(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    end = broker.handlers[37]
    refusals = [Command(2, remark="[REJECTREQUEST]this broker follows another")] * 2
    broker.on(37, lambda request: refusals.pop() if refusals else end(request))
    async with producer.transaction(ORDER) as transaction:
        pass
    assert transaction.is_confirmed
    assert len(broker.ended) == 1


async def test_a_cancelled_block_leaves_the_outcome_to_the_check(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    entered = asyncio.Event()

    async def work() -> None:
        async with producer.transaction(ORDER):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: len(broker.ended) == 1)
    assert broker.ended[0].commit_or_rollback == UNKNOWN


async def test_a_commit_that_is_cancelled_is_made_all_the_same(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    left = asyncio.Event()

    async def work() -> None:
        async with producer.transaction(ORDER):
            left.set()

    task = asyncio.create_task(work())
    await left.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await producer.close()
    assert [end.commit_or_rollback for end in broker.ended] == [COMMIT]


async def test_a_close_waits_until_the_outcomes_are_answered(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    end, may_answer = broker.handlers[37], asyncio.Event()

    async def end_late(request: Command) -> Command:
        await may_answer.wait()
        answer = end(request)
        assert isinstance(answer, Command)
        return answer

    async def work() -> Transaction:
        async with producer.transaction(ORDER) as transaction:
            return transaction

    broker.on(37, end_late)
    working = asyncio.create_task(work())
    await broker.wait_for(37)
    closing = asyncio.create_task(producer.close())
    for _ in range(20):
        await asyncio.sleep(0)
    may_answer.set()
    await closing
    assert (await working).is_confirmed


@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (TransactionState.COMMIT, COMMIT),
        ("rollback", ROLLBACK),
        ("unknown", UNKNOWN),
        (None, UNKNOWN),
        ("maybe", UNKNOWN),
        (RuntimeError("no database"), UNKNOWN),
    ],
)
async def test_a_check_is_answered_by_the_coroutine(
    producer: TransactionProducer,
    broker: MessageBroker,
    checks: Checks,
    answer: str | Exception | None,
    sent: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await producer.send(ORDER)
    broker.stored[0][1].update(PGROUP="billing", TRAN_MSG="true")
    checks.answer = answer
    await ask(broker, broker.check_of(0))
    await until(lambda: len(broker.ended) == 1)
    (end,) = broker.ended
    assert end.commit_or_rollback == sent
    assert end.from_transaction_check
    assert (end.tran_state_table_offset, end.commit_log_offset) == (0, 0)
    assert end.msg_id == end.transaction_id == broker.stored[0][1]["UNIQ_KEY"]
    (message,) = checks.asked
    assert (message.topic, message.body, message.keys) == ("orders", b"order 7", ["o-7"])
    if isinstance(answer, Exception):
        assert "no database" in caplog.text


async def test_a_check_while_the_block_still_runs_is_answered_with_unknown(
    producer: TransactionProducer, broker: MessageBroker, checks: Checks
) -> None:
    checks.answer = "rollback"  # of a check that finds nothing recorded
    async with producer.transaction(ORDER):
        await ask(broker, broker.check_of(0))
        await until(lambda: len(broker.ended) == 1)
    assert [end.commit_or_rollback for end in broker.ended] == [UNKNOWN, COMMIT]
    assert checks.asked == []
    with pytest.raises(ValueError, match="no stock"):
        async with producer.transaction(ORDER):
            raise ValueError("no stock")
    await ask(broker, broker.check_of(1))
    await until(lambda: len(broker.ended) == 4)
    assert len(checks.asked) == 1


async def test_checks_of_other_groups_and_damaged_ones_are_not_answered(
    producer: TransactionProducer,
    broker: MessageBroker,
    checks: Checks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await producer.send(ORDER)
    broker.stored[0][1].update(PGROUP="another")
    damaged = broker.check_of(0)
    damaged.body = damaged.body[:50]
    with caplog.at_level(logging.WARNING):
        await ask(broker, broker.check_of(0))
        await ask(broker, damaged)
        await until(
            lambda: "invalid transaction check" in caplog.text and "'another'" in caplog.text
        )
    assert checks.asked == []
    assert broker.ended == []


async def ask(broker: MessageBroker, check: Command) -> None:
    """Send a check on the connection of the producer; it gets no answer."""
    broker.connections[-1].transport.write(encode_command(check))


async def test_brokers_know_the_producer_before_it_has_sent_anything(
    producer: TransactionProducer, broker: MessageBroker
) -> None:
    (heartbeat,) = await broker.wait_for(34)
    assert b'"groupName":"billing"' in heartbeat.body


async def test_a_broken_connection_is_made_again_without_a_send(broker: MessageBroker) -> None:
    session = Session(broker.address)
    session.producer_groups.add("billing")
    await session.start()
    reachability = Reachability(session, look_interval_s=0.01)
    reachability.start()
    try:
        await broker.wait_for(34, 1)
        broker.drop_connections()
        await broker.wait_for(34, 2)
    finally:
        await reachability.close()
        await session.close()
