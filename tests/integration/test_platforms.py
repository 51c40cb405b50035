"""What Windows lacks is missing: the client works, the broker says that it cannot."""

import asyncio
import signal
import sys
from typing import Any

import pytest

from rockhopper.broker import Broker
from tests.support.command_line import Ended
from tests.support.hang import HANG_S

pytestmark = pytest.mark.costly


async def start(broker: Broker | None, *arguments: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    named = ("-n", broker.nameserver) if broker is not None else ()
    side, *rest = arguments
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.bare_platform", side, *named, *rest),
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
    )


async def ended(process: asyncio.subprocess.Process, stdin: bytes = b"") -> Ended:
    async with asyncio.timeout(HANG_S):
        out, err = await process.communicate(stdin)
    assert process.returncode is not None
    assert "Traceback" not in err.decode()
    return Ended(process.returncode, out.decode(), err.decode())


async def run(broker: Broker | None, *arguments: str, stdin: bytes = b"") -> Ended:
    return await ended(await start(broker, *arguments), stdin)


async def test_the_client_works(broker: Broker) -> None:
    sent = await run(broker, "client", "send", "orders", "-", "--tag", "new", stdin=b"one\ntwo\n")
    assert (sent.code, sent.err) == (
        0,
        "rockhopper: there was no topic 'orders': it has been created\n",
    )
    pulled = await run(broker, "client", "pull", "orders", "--json")
    assert sorted(each["body"] for each in pulled.objects) == ["one", "two"]
    consumed = await run(broker, "client", "consume", "orders", "-g", "billing", "--max", "2")
    assert consumed.code == 0, consumed.err
    assert "billing" in (await run(broker, "client", "group", "list")).out
    assert (await run(broker, "client", "top", "--once", "--interval", "0.2")).code == 0


async def test_ctrl_c_ends_a_consumer_in_good_order(broker: Broker) -> None:
    await run(broker, "client", "send", "orders", "hello")
    process = await start(broker, "client", "consume", "orders", "-g", "billing", "--json")
    assert process.stdout is not None
    async with asyncio.timeout(HANG_S):
        assert b"hello" in await process.stdout.readline()
    process.send_signal(signal.SIGINT)
    end = await ended(process)
    assert (end.code, end.err) == (
        130,
        "rockhopper: 1 message was consumed and acknowledged before Ctrl-C\n",
    )
    offsets = [broker.tables.offsets.get("orders", "billing", queue) or 0 for queue in range(4)]
    assert sum(offsets) == 1


@pytest.mark.parametrize("arguments", [(), ("store", "check", ".")])
async def test_the_broker_says_what_it_cannot_do_without(arguments: Any) -> None:
    end = await run(None, "broker", *arguments)
    (line,) = end.err.splitlines()
    assert end.code == 1
    assert "lacks module fcntl" in line
    assert "run the broker on Linux" in line
    assert (await run(None, "broker", "--help")).code == 0
