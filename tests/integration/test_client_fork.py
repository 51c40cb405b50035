"""A client that a forked process inherits: every use fails at once and says why."""

import asyncio
import contextlib
import os
import socket
import stat
import traceback
from collections.abc import Awaitable, Callable

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    Admin,
    ClientStateError,
    Message,
    Producer,
    PullConsumer,
    TransactionProducer,
)
from rockhopper.client.received import ReceivedMessage
from tests.support.hang import HANG_S

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

Call = Callable[[], Awaitable[object]]


async def check(message: ReceivedMessage) -> str:
    return "commit"


def in_a_child(work: Callable[[], Awaitable[None]]) -> None:
    """Fork, run a coroutine in the child in a loop of its own, and fail if it failed there."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        problem = b""
        try:
            asyncio.Runner(loop_factory=asyncio.SelectorEventLoop).run(work())  # type: ignore[arg-type]
        except BaseException:
            problem = traceback.format_exc().encode()
        finally:
            os.write(writing, problem[-60_000:])
            os._exit(0)  # nothing of the parent's may be closed or printed here
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        problem = pipe.read()
    os.waitpid(child, 0)
    assert problem.decode() == ""


async def refuses(call: Call) -> None:
    """Expect that a call says at once that its client belongs to the parent."""
    async with asyncio.timeout(HANG_S):
        with pytest.raises(ClientStateError, match="create a new client in the child process"):
            await call()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_every_call_of_an_inherited_client_says_so_and_a_new_client_works() -> None:
    async with (
        Broker.temporary() as broker,
        Producer(broker.nameserver, trace=True) as producer,
        TransactionProducer("g", check=check, nameserver=broker.nameserver) as transactions,
        Admin(broker.nameserver) as admin,
    ):
        receipt = await producer.send("orders", b"before")
        async with PullConsumer("orders", nameserver=broker.nameserver, group="g") as consumer:
            (message,) = await consumer.pull(1, timeout_s=HANG_S)
            queue = message.queue
            handle = ("orders", "djEgb3JkZXJzIGEgOTkgSUQ=")

            async def transaction() -> None:
                async with transactions.transaction(Message("orders")):
                    pass

            async def local(_: object) -> str:
                return "commit"

            calls: list[Call] = [
                lambda: producer.send("orders", b"x"),
                lambda: producer.send(Message("orders", b"x", sharding_key="k")),
                lambda: producer.send("another", b"x"),
                lambda: producer.send_batch([Message("orders")]),
                lambda: producer.send_oneway("orders", b"x"),
                lambda: producer.request(Message("orders"), timeout_s=1),
                lambda: producer.recall(handle),
                lambda: producer.queues("orders"),
                transaction,
                lambda: transactions.send_in_transaction(Message("orders"), local),
                lambda: consumer.pull(timeout_s=1),
                lambda: consumer.pull_from(queue, 0),
                lambda: consumer.end_offset(queue),
                lambda: consumer.commit(message),
                lambda: admin.topics(),
                lambda: admin.route("orders"),
                lambda: admin.create_topic("new"),
                lambda: admin.offsets.max_offset(queue),
            ]

            async def child() -> None:
                for call in calls:
                    await refuses(call)
                for client in (producer, transactions, consumer, admin):
                    async with asyncio.timeout(HANG_S):
                        await client.close()

            in_a_child(child)
            # The parent's sockets and what travels on them are as they were.
            assert (await producer.send("orders", b"after")).queue.topic == "orders"
            assert [each.body for each in await consumer.pull(1, timeout_s=HANG_S)] == [b"after"]
            assert "orders" in await admin.topics()
        assert receipt.queue_offset == 0


async def test_a_child_closes_the_sockets_that_it_inherits() -> None:
    """Else a broker would not notice that the parent was killed while its pool lives on."""

    def kept(ports: set[int]) -> int:
        """Count the sockets of these ports, at either end, that this process has."""
        count = 0
        for name in os.listdir("/dev/fd"):
            with contextlib.suppress(OSError):
                if not stat.S_ISSOCK(os.stat(int(name)).st_mode):
                    continue
                with socket.socket(fileno=os.dup(int(name))) as inherited:
                    ends = [inherited.getsockname()]
                    with contextlib.suppress(OSError):
                        ends.append(inherited.getpeername())
                    count += any(end[1] in ports for end in ends if isinstance(end, tuple))
        return count

    async with Broker.temporary() as broker, Producer(broker.nameserver) as producer:
        await producer.send(Message("orders", b"x"))
        ports = {int(each.rpartition(":")[2]) for each in (broker.address, broker.nameserver)}

        async def kept_none() -> None:
            assert kept(ports) == 0

        assert kept(ports) >= 4
        in_a_child(kept_none)
        await producer.send(Message("orders", b"y"))
