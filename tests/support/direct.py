"""A bare connection to a broker or name service: commands out, answers back, nothing hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Self

from protocol.codes import RequestCode
from protocol.command import Command, decode_header, encode_command
from protocol.frame import FrameDecoder
from protocol.message import StoredMessage
from protocol.message_codec import decode_messages


class Wire:
    """One connection; answers come back in the order in which they are waited for."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._decoder = FrameDecoder()
        self._arrived: dict[int, Command] = {}
        self._opaque = 0

    async def __aenter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await asyncio.gather(self._writer.wait_closed(), return_exceptions=True)

    def send(self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b"") -> int:
        """Write a request and return its opaque."""
        self._opaque += 1
        self._writer.write(
            encode_command(Command(code=code, opaque=self._opaque, ext=dict(ext or {}), body=body))
        )
        return self._opaque

    async def answer(self, opaque: int) -> Command:
        """The answer to a request; EOFError when the other side closes instead."""
        while opaque not in self._arrived:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError(f"{self._address} closed the connection")
            for serialize_type, header, body in self._decoder.feed(data):
                command = decode_header(serialize_type, header, body)
                self._arrived[command.opaque] = command
        return self._arrived.pop(opaque)

    async def ask(
        self, code: int, ext: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Command:
        """Send a request and wait for its answer."""
        return await self.answer(self.send(code, ext, body))


async def ask(
    address: str, code: int, ext: Mapping[str, str] | None = None, body: bytes = b""
) -> Command:
    """Ask once, on a connection of its own."""
    async with Wire(address) as wire:
        return await wire.ask(code, ext, body)


async def route(nameserver: str, topic: str) -> Command:
    """Where *topic* is."""
    return await ask(nameserver, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def send_fields(topic: str, queue_id: int = 0) -> dict[str, str]:
    """The header of a send, as a Java client would write it in full."""
    return {
        "producerGroup": "tests",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "properties": "",
    }


async def send(address: str, topic: str, body: bytes, queue_id: int = 0) -> Command:
    """Send one message."""
    return await ask(address, RequestCode.SEND_MESSAGE, send_fields(topic, queue_id), body)


def pull_fields(topic: str, offset: int, queue_id: int = 0, suspend_ms: int = 0) -> dict[str, str]:
    """The header of a pull; with *suspend_ms* it waits for messages."""
    return {
        "consumerGroup": "tests",
        "topic": topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6" if suspend_ms else "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms),
        "subscription": "*",
        "subVersion": "0",
    }


async def pull(address: str, topic: str, offset: int = 0, queue_id: int = 0) -> list[StoredMessage]:
    """The messages of a queue from *offset* on."""
    answer = await ask(address, RequestCode.PULL_MESSAGE, pull_fields(topic, offset, queue_id))
    return decode_messages(answer.body)
