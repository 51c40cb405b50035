"""`rockhopper` in separate processes, for tests of streams and signals."""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Any

from rockhopper.broker import Broker
from rockhopper.client import Consumer, Producer
from tests.support.command_line import Ended
from tests.support.hang import HANG_S


@dataclass(frozen=True)
class Shell:
    """Starts commands against one broker."""

    nameserver: str

    async def start(self, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
        environment = {**os.environ, "NAMESRV_ADDR": self.nameserver}
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rockhopper.client", *arguments),
            env=environment,
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe, **streams},
        )

    async def run(self, *arguments: str, stdin: bytes = b"") -> Ended:
        process = await self.start(*arguments)
        async with asyncio.timeout(HANG_S):
            out, err = await process.communicate(stdin)
        assert process.returncode is not None
        assert "Traceback" not in err.decode()
        return Ended(process.returncode, out.decode(), err.decode())


async def send(broker: Broker, *bodies: bytes, queue: int = 0, topic: str = "orders") -> None:
    async with Producer(broker.nameserver) as producer:
        for body in bodies:
            await producer.send(topic, body, queue=queue)


async def consume(broker: Broker, count: int, group: str = "billing") -> None:
    """Consume this many messages, commit, and leave."""
    async with Consumer(group, "orders", nameserver=broker.nameserver) as consumer:
        messages = aiter(consumer)
        async with asyncio.timeout(HANG_S):
            for _ in range(count):
                await anext(messages)
