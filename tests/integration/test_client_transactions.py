"""The bundled TransactionProducer against the real broker: commit, rollback, and being asked."""

import asyncio

import pytest

from rockhopper.broker.app import Broker
from rockhopper.client import Message, TransactionProducer
from tests.support.direct import pull
from tests.support.features import transactions_of
from tests.support.hang import HANG_S
from tests.support.raw_peer import until


async def test_the_bundled_producer_commits_rolls_back_and_is_asked() -> None:
    asked: asyncio.Queue[str] = asyncio.Queue()

    async def check(message: object) -> str:
        asked.put_nowait(message.body.decode())  # type: ignore[attr-defined]
        return "commit"

    settings = {
        "transactionTimeOut": "300",
        "transactionCheckInterval": "100",
        "transactionCheckMax": "8",
    }
    async with Broker.temporary(settings) as broker:
        halves = transactions_of(broker).halves
        async with TransactionProducer(
            "payers", check=check, nameserver=broker.nameserver
        ) as producer:
            async with producer.transaction(Message("orders", b"paid")):
                assert len(halves) == 1

            async def fail() -> None:
                async with producer.transaction(Message("orders", b"failed")) as transaction:
                    transaction.roll_back()
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                await fail()
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message("orders", b"recorded")):
                    raise ZeroDivisionError
            async with asyncio.timeout(HANG_S):
                assert await asked.get() == "recorded"
            await until(lambda: len(halves) == 0)
            assert transactions_of(broker).ends.rolled_back == {"orders": 1}
            async with producer.transaction(Message("orders", b"forgotten")) as transaction:
                transaction.leave_unknown()
            async with asyncio.timeout(HANG_S):
                assert await asked.get() == "forgotten"
            await until(lambda: len(halves) == 0)
            # It is not asked about while it runs, and counts although the broker has given it up.
            async with producer.transaction(Message("orders", b"slow")):
                await until(lambda: transactions_of(broker).check_back.held_count == 1)
            assert "slow" not in {asked.get_nowait() for _ in range(asked.qsize())}
        found = [
            message.body
            for queue_id in range(4)
            for message in await pull(broker.address, "orders", queue_id=queue_id)
        ]
        assert sorted(found) == [b"forgotten", b"paid", b"recorded", b"slow"]
