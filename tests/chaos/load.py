"""Load: clients that send all kinds of messages to one life of a broker and note its answers.

Each worker repeats one operation until the load is stopped. A failed operation is noted as refused;
after a pause, the worker tries again with a new message. The broker may store or drop the failed
one.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Self

from rockhopper.client import (
    ClientError,
    Consumer,
    Message,
    Producer,
    PullConsumer,
    RequestRefusedError,
    Transaction,
    TransactionProducer,
    TransactionState,
)
from rockhopper.client.receipts import SendReceipt, SendStatus
from rockhopper.client.received import ReceivedMessage
from tests.chaos import topics
from tests.chaos.crowd import CONNECTIONS, send_one_by_one
from tests.chaos.ledger import LATER, Commit, Fact, Kind, Ledger
from tests.chaos.popping import pop_and_acknowledge
from tests.chaos.returning import send_back
from tests.chaos.sinking import publish_batches

TIMEOUT_S = 30.0
CLOSE_TIMEOUT_S = 20.0
PAUSE_AFTER_REFUSAL_S = 0.1
BATCH_MAX = 20
LEVEL_MS = {1: 1000, 2: 2000}
TIMER_MS_MAX = 2500
COMMIT_EVERY = 4

Work = Callable[[], Awaitable[None]]


class Load:
    """The clients, from ``async with`` to its end."""

    def __init__(
        self,
        address: str | Callable[[], str],
        nameserver: str,
        ledger: Ledger,
        dice: random.Random,
        *,
        pause_s: float = 0.02,
        is_clock_ours: bool = True,
        timeout_s: float = TIMEOUT_S,
        session_s: float | None = None,
        is_crowded: bool = False,
    ) -> None:
        """Take the clients' settings.

        *pause_s* is the mean pause between two requests of a worker. *address* may change between
        sessions, and a session ends after *session_s*. That is needed if a broker may fall silent
        and another one takes over. A hundred connections more, with one send in flight on each,
        make it crowded.
        """
        self._find_address = address if callable(address) else lambda: address
        self._timeout_s = timeout_s
        self._session_s = session_s
        self._nameserver = nameserver
        self._ledger = ledger
        self._dice = dice
        self._pause_s = pause_s
        self._is_clock_ours = is_clock_ours
        self._crowd = CONNECTIONS if is_crowded else 0
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        nameserver = self._nameserver
        self._producer = Producer(nameserver, retries=0, timeout_s=self._timeout_s)
        self._payer = TransactionProducer(
            topics.PAYERS,
            check=self._check,
            nameserver=nameserver,
            retries=0,
            timeout_s=self._timeout_s,
        )
        self._reader = PullConsumer(nameserver=nameserver, group=topics.READERS)
        self._answerer = Consumer(
            topics.ANSWERERS,
            topics.QUESTIONS,
            nameserver=nameserver,
            handler=self._answer,
            close_timeout_s=0.1,
        )
        self._stack = AsyncExitStack()
        await self._stack.enter_async_context(self._producer)
        await self._stack.enter_async_context(self._payer)
        await self._stack.enter_async_context(self._reader)
        await self._stack.enter_async_context(self._answerer)
        works: list[Work] = [
            self._send_plain,
            self._send_plain,
            self._send_batch,
            self._send_ordered,
            self._send_later,
            self._send_timed,
            self._transact,
            self._ask,
        ]
        self._tasks = [asyncio.create_task(self._repeat(work)) for work in works]
        for session in (
            self._read_and_commit,
            lambda: pop_and_acknowledge(self._find_address(), self._ledger, self._send, self._rest),
            lambda: send_back(
                self._find_address(), self._ledger, self._send, self._dice, self._rest
            ),
            lambda: publish_batches(self._find_address(), self._ledger, self._dice, self._rest),
        ):
            self._tasks.append(asyncio.create_task(self._repeat(session)))
        for _ in range(self._crowd):
            self._tasks.append(asyncio.create_task(self._repeat(self._send_one_by_one)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
        closing = asyncio.create_task(self._stack.aclose())
        await asyncio.wait([closing], timeout=CLOSE_TIMEOUT_S)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _repeat(self, work: Work) -> None:
        while True:
            try:
                async with asyncio.timeout(self._session_s):
                    await work()
                await self._rest()
            except (ClientError, OSError, EOFError, TimeoutError) as error:
                self._ledger.refused(error)
                await asyncio.sleep(PAUSE_AFTER_REFUSAL_S)

    async def _rest(self) -> None:
        await asyncio.sleep(self._dice.uniform(0, 2 * self._pause_s))

    async def _send(self, fact: Fact, **how: object) -> SendReceipt:
        message = Message(fact.topic, fact.body, keys=[fact.kind.name], **how)  # type: ignore[arg-type]
        asked_s = self._ledger.now_s()
        receipt = await self._producer.send(message)
        if receipt.status is SendStatus.OK:
            self._ledger.acknowledged(fact)
            if fact.kind not in LATER:
                place = receipt.queue.queue_id, receipt.queue_offset
                self._ledger.placed(fact, *place, asked_s)
        return receipt

    async def _send_plain(self) -> None:
        await self._send(self._ledger.expect(topics.PLAIN, Kind.PLAIN), tags="new")

    async def _send_one_by_one(self) -> None:
        await send_one_by_one(self._find_address(), self._ledger, self._dice)

    async def _send_batch(self) -> None:
        name = self._ledger.body("batch").split(b" ")[1].decode()
        facts = [
            self._ledger.expect(topics.BATCHES, Kind.BATCH, batch=f"batch {name}")
            for _ in range(self._dice.randrange(2, BATCH_MAX))
        ]
        try:
            receipts = await self._producer.send_batch(
                [Message(fact.topic, fact.body) for fact in facts]
            )
        except RequestRefusedError:
            for fact in facts:
                fact.was_refused = True
            raise
        if all(receipt.status is SendStatus.OK for receipt in receipts):
            self._ledger.acknowledged(*facts)

    async def _send_ordered(self) -> None:
        key = f"key-{self._dice.randrange(3)}"
        number = len(self._ledger.facts)
        fact = self._ledger.expect(topics.ORDERED, Kind.ORDERED, order=(key, number))
        await self._send(fact, sharding_key=key)

    async def _send_later(self) -> None:
        level = self._dice.choice(list(LEVEL_MS))
        fact = self._expect_later(topics.LATER, Kind.LEVEL, LEVEL_MS[level])
        await self._send(fact, delay_level=level)

    async def _send_timed(self) -> None:
        delay_ms = self._dice.randrange(1, TIMER_MS_MAX)
        fact = self._expect_later(topics.TIMED, Kind.TIMER, delay_ms)
        await self._send(fact, delay_s=delay_ms / 1000)

    def _expect_later(self, topic: str, kind: Kind, delay_ms: int) -> Fact:
        due_ms = time.time_ns() // 1_000_000 + delay_ms if self._is_clock_ours else 0
        come = asyncio.get_running_loop().call_later
        come(delay_ms / 1000, lambda: self._ledger.about_to("delivery"))
        return self._ledger.expect(
            topic, kind, due_ms=due_ms, asked_s=self._ledger.now_s(), delay_s=delay_ms / 1000
        )

    async def _transact(self) -> None:
        kind = self._dice.choice([Kind.COMMITTED, Kind.ROLLED_BACK])
        fact = self._ledger.expect(topics.PAID, kind)

        async def decide(_: Transaction) -> TransactionState:
            self._ledger.about_to("transaction-end")
            return _state(fact)

        transaction = await self._payer.send_in_transaction(Message(fact.topic, fact.body), decide)
        if transaction.is_confirmed:
            self._ledger.acknowledged(fact)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        fact = self._ledger.facts.get((topics.PAID, message.body))
        if fact is None:
            self._ledger.problems.append(f"a check asked about {message.body[:40]!r}")
            return TransactionState.UNKNOWN
        return _state(fact)

    async def _ask(self) -> None:
        fact = self._ledger.expect(topics.QUESTIONS, Kind.REQUEST)
        reply = await self._producer.request(
            Message(fact.topic, fact.body), timeout_s=self._timeout_s
        )
        self._ledger.acknowledged(fact)
        if reply.body != b"heard " + fact.body:
            self._ledger.problems.append(f"the reply to {fact.body[:40]!r} was {reply.body[:40]!r}")

    async def _answer(self, message: ReceivedMessage) -> None:
        try:
            await self._producer.reply(message, b"heard " + message.body)
        except ClientError as error:
            self._ledger.refused(error)  # the requester is gone

    async def _read_and_commit(self) -> None:
        """Read the plain messages and commit offsets now and then, until it fails."""
        queues = await self._reader.queues(topics.PLAIN)
        await self._reader.assign([])
        await self._reader.assign(queues)
        while True:
            for message in await self._reader.pull(32, timeout_s=1):
                self._see(message)
            positions = {queue: self._reader.position(queue) for queue in queues}
            now_s = self._ledger.now_s()
            commits = [Commit(queue.queue_id, offset, now_s) for queue, offset in positions.items()]
            self._ledger.commits += commits
            await self._reader.commit(positions)
            for commit in commits:
                commit.acknowledged_s = self._ledger.now_s()
            await self._rest()

    def _see(self, message: ReceivedMessage) -> None:
        """Note the message that a consumer read, which must stay in the store."""
        fact = self._ledger.facts.get((topics.PLAIN, message.body))
        if fact is None:
            self._ledger.problems.append(f"{message} holds {message.body[:40]!r}: nobody sent it")
        else:
            self._ledger.acknowledged(fact)
            self._ledger.saw(fact.topic, message.queue.queue_id, message.queue_offset, fact.body)


def _state(fact: Fact) -> TransactionState:
    return TransactionState.COMMIT if fact.kind is Kind.COMMITTED else TransactionState.ROLLBACK
