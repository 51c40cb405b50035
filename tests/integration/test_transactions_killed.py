"""The daemon is killed twice among transactions: what is committed arrives once, nothing else."""

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.command import Command
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.daemon import Daemon
from tests.support.direct import pull_all, pull_fields
from tests.support.hang import HANG_S
from tests.support.transactions import (
    COMMIT,
    HALF_TOPIC,
    OP_TOPIC,
    ROLLBACK,
    Half,
    checked,
    end_fields,
    half_fields,
    half_of,
    producer_heartbeat,
)
from tests.support.wire import WireClient

pytestmark = pytest.mark.costly

QUICK = (
    *("--set", "transactionTimeOut=200", "--set", "transactionCheckInterval=200"),
    *("--set", "transactionCheckMax=1000"),
)
WORKERS = 20
QUEUES = 4


async def ask_or_lose(
    client: WireClient, code: Code, ext: dict[str, str], body: bytes = b""
) -> Command | None:
    """The answer; None when the broker is killed before it comes."""
    try:
        answer = client.send(code, ext, body)
    except ConnectionError:
        return None
    either: set[asyncio.Future[Any]] = {answer, client.task}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    return answer.result() if answer.done() else None


class Producer:
    """Sends transactions: a third each committed, rolled back and forgotten.

    What is forgotten is decided when the broker asks, who may do so before the send is answered:
    it asks again. ``decisions`` is what the application knows; a half message whose send was never
    answered is rolled back, and another one sent in its place.
    """

    def __init__(self, store: Path, count: int, *options: str) -> None:
        self._store = store
        self._options = (*QUICK, *options)
        self._count = count
        self._numbers: Iterator[int] = itertools.count()
        self._keys = itertools.count()
        self.decisions: dict[str, int] = {}
        self._sending: set[str] = set()
        self.unanswered = 0
        self.checks = 0
        self.finished = 0
        self._kill_at = [count // 3, 2 * count // 3]
        self._kill_now = asyncio.Event()
        self.pending: list[tuple[Half, int]] = []

    async def run(self) -> str:
        """Send everything, over three lives of the broker; return the last one's address."""
        for _ in range(2):
            async with Daemon(self._store, *self._options) as daemon:
                await self._live(daemon, until_killed=True)
        self._last = Daemon(self._store, *self._options)
        daemon = await self._last.__aenter__()
        await self._live(daemon, until_killed=False)
        return daemon.address

    async def stop(self) -> None:
        await self._last.__aexit__()

    async def _live(self, daemon: Daemon, *, until_killed: bool) -> None:
        self._kill_now.clear()
        client = WireClient(daemon.address)
        await client.__aenter__()
        self._answering = asyncio.create_task(self._answer_checks(client))
        await client.ask(Code.HEART_BEAT, body=producer_heartbeat("p"))
        workers = [asyncio.create_task(self._work(client)) for _ in range(WORKERS)]
        if until_killed:
            await self._kill_now.wait()
            await daemon.kill()
        await asyncio.gather(*workers)
        if until_killed:
            self._answering.cancel()
            await client.close()
        else:
            self._client = client

    async def _work(self, client: WireClient) -> None:
        while self.pending:
            half, how = self.pending.pop()
            if not await self._end(client, half, how):
                return
        for number in self._numbers:
            if number >= self._count or client.task.done():
                break
            if not await self._transact(client, number):
                return

    async def _transact(self, client: WireClient, number: int) -> bool:
        key = f"K{next(self._keys)}"
        self.decisions[key] = ROLLBACK
        self._sending.add(key)
        fields = half_fields("orders", key, born_ms=time.time_ns() // 1_000_000)
        fields["e"] = str(number % QUEUES)
        answer = await ask_or_lose(client, Code.SEND_MESSAGE_V2, fields, key.encode())
        self._sending.remove(key)
        if answer is None:
            self.unanswered += 1
            self._numbers = itertools.chain([number], self._numbers)
            return False
        half = half_of(answer)
        kind = number % 3
        if kind == 2:
            self.decisions[key] = COMMIT if number % 2 else ROLLBACK
        else:
            self.decisions[key] = (COMMIT, ROLLBACK)[kind]
            if not await self._end(client, half, self.decisions[key]):
                return False
        self.finished += 1
        if self._kill_at and self.finished >= self._kill_at[0]:
            self._kill_at.pop(0)
            self._kill_now.set()
        return True

    async def _end(self, client: WireClient, half: Half, how: int) -> bool:
        answer = await ask_or_lose(client, Code.END_TRANSACTION, end_fields(half, how))
        if answer is None:
            self.unanswered += 1
            # Every other one is said again, the rest is left to the broker to ask about.
            if self.unanswered % 2:
                self.pending.append((half, how))
            return False
        assert answer.code == 0, (half, how, answer.remark)
        return True

    async def _answer_checks(self, client: WireClient) -> None:
        while True:
            half = checked(await client.pushed.get())
            if half.unique_key in self._sending:
                continue
            self.checks += 1
            how = self.decisions.get(half.unique_key, ROLLBACK)
            fields = end_fields(half, how, fromTransactionCheck="true")
            client.send_oneway(Code.END_TRANSACTION, fields)


async def until_all_ended(address: str) -> None:
    """Wait until an op message names every half message."""
    halves = await pull_all(address, HALF_TOPIC)
    ended: set[int] = set()
    offset = 0
    async with asyncio.timeout(HANG_S), WireClient(address) as client:
        while len(ended) < len(halves):
            fields = pull_fields(OP_TOPIC, offset, suspend_ms=15_000)
            for op in decode_messages((await client.ask(Code.PULL_MESSAGE, fields)).body):
                ended.update(int(text) for text in op.body.decode().split(",") if text)
                offset = op.queue_offset + 1


async def run_transactions(store: Path, count: int, *options: str) -> Producer:
    producer = Producer(store, count, *options)
    address = await producer.run()
    try:
        await until_all_ended(address)
        delivered = [
            message.body.decode()
            for queue_id in range(QUEUES)
            for message in await pull_all(address, "orders", queue_id)
        ]
        halves = {message.properties["UNIQ_KEY"] for message in await pull_all(address, HALF_TOPIC)}
    finally:
        producer._answering.cancel()
        await producer._client.close()
        await producer.stop()
    committed = [key for key, how in producer.decisions.items() if how == COMMIT]
    assert sorted(delivered) == sorted(committed)
    assert set(committed) <= halves
    assert producer.finished >= count - producer.unanswered
    assert producer.checks >= count // 3
    return producer


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_transactions_survive_two_kills(tmp_path: Path, flush: str) -> None:
    await run_transactions(tmp_path, 150, "--set", f"flushDiskType={flush}")


@pytest.mark.slow
async def test_a_thousand_transactions_survive_two_kills(tmp_path: Path) -> None:
    for life in range(5):
        producer = await run_transactions(tmp_path / str(life), 1000)
        print(
            f"{len(producer.decisions)} half messages, {producer.unanswered} requests unanswered, "
            f"{producer.checks} questions answered"
        )
