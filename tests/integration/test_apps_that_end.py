"""An App ends by an error that lasts, and at once by a second signal."""

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin, Producer
from rockhopper.client.app.app import App
from rockhopper.client.errors import RequestRefusedError
from rockhopper.protocol import fastjson
from rockhopper.protocol.codes import RequestCode
from tests.support.billing import billing
from tests.support.hang import HANG_S
from tests.support.turns import until, until_logged


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary() as broker:
        yield broker


async def close_group(broker: Broker) -> None:
    """Let the group exist, and nobody consume with it."""
    group = {
        "groupName": "billing",
        "consumeEnable": False,
        "consumeBroadcastEnable": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
    }
    text = fastjson.dumps(group)
    async with Admin(broker.nameserver) as admin:
        (master,) = await admin.masters()
        await admin.request(
            master.address,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            body=text if isinstance(text, bytes) else text.encode(),
        )


async def test_an_app_whose_subscriber_is_refused_for_good_raises_it(
    broker: Broker, producer: Producer
) -> None:
    await close_group(broker)
    await producer.send("orders", b"x")
    app = App(broker.nameserver)

    @app.subscriber("orders", group="billing")
    async def bill(body: bytes) -> None: ...

    with pytest.raises(RequestRefusedError, match="NO_PERMISSION"):
        async with asyncio.timeout(HANG_S):
            await app.serve()


async def test_a_consumer_with_a_handler_that_is_refused_leaves_its_group(
    broker: Broker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(_message: object) -> None: ...

    await close_group(broker)
    await producer.send("orders", b"x")
    async with billing(broker, handler=handle) as consumer:
        await until_logged(caplog, "NO_PERMISSION")
        await until(lambda: not consumer.assigned)


HANGING = """
import asyncio, sys
from rockhopper import App
app = App(sys.argv[1])

@app.subscriber("orders", group="billing")
async def bill(body: bytes) -> None:
    print("working", flush=True)
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            print("goes on", flush=True)

app.run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_an_app_at_once(
    broker: Broker, producer: Producer, number: signal.Signals
) -> None:
    await producer.send("orders", b"x")
    command = (sys.executable, "-c", HANGING, broker.nameserver)
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(HANG_S):
            assert await process.stdout.readline() == b"working\n"
            while process.returncode is None:
                process.send_signal(number)
                try:
                    async with asyncio.timeout(0.5):
                        await process.wait()
                except TimeoutError:
                    continue
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == -number
