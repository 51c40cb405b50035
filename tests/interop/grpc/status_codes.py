"""What an endpoint answers to some 200 calls, most of which are wrong in one way.

`python -m tests.interop.grpc.status_codes` asks Apache's proxy and writes its answers to
tests/golden/grpc_status_codes.json; test_status_codes.py asks ours and compares.
"""

import asyncio
import itertools
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grpc

from rockhopper.client import Admin
from rockhopper.protocol.grpc_v2 import messages
from tests.interop.grpc import apache_proxy, topics
from tests.interop.grpc.status_cases import (
    FIFO_GROUP,
    GROUP,
    TOPICS,
    Case,
    Request,
    corpus,
    message,
    named,
    received,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "grpc_status_codes.json"
SIDE_BY_SIDE = 8

Answer = dict[str, Any]
"""A status code, those of entries, or how the call itself ended."""


class Asker:
    """Asks one endpoint."""

    def __init__(self, endpoint: str, nameserver: str) -> None:
        self._nameserver = nameserver
        unlimited = [(f"grpc.max_{way}_message_length", -1) for way in ("send", "receive")]
        self._channel = grpc.aio.insecure_channel(endpoint, options=unlimited)
        self._numbers = itertools.count()
        self._preparing = asyncio.Lock()
        self._streams: list[Any] = []
        self._broker = ""
        self._preparations: Mapping[str, Callable[[], Any]] = {
            "handle": self._handle,
            "transaction": self._transaction,
            "recall": self._recall,
        }

    async def answers(self) -> dict[str, Answer]:
        """The answers to the whole corpus, by case."""
        await self._prepare()
        gate = asyncio.Semaphore(SIDE_BY_SIDE)

        async def ask(case: Case) -> Answer:
            async with gate:
                return await self.answer(case)

        cases = corpus()
        found = await asyncio.gather(*(ask(case) for case in cases.values()))
        for stream in self._streams:
            stream.cancel()
        await self._channel.close()
        return dict(zip(cases, found, strict=True))

    async def answer(self, case: Case) -> Answer:
        """The answer to one case."""
        request = case.request
        if callable(request):
            async with self._preparing:
                request = request(await self._preparations[case.needs]())
        try:
            return await self._call(case, request)
        except grpc.aio.AioRpcError as error:
            return {"grpc": error.code().name}

    async def _call(self, case: Case, request: Request | bytes) -> Answer:
        if case.rpc == "Telemetry":
            assert not isinstance(request, bytes)
            return await self._telemetry(case, request)
        call = self._begun(case, request)
        if case.rpc in ("ReceiveMessage", "PullMessage"):
            replies = [reply async for reply in call]
            codes = [reply.status.code for reply in replies if reply.HasField("status")]
            return {"status": codes[0] if codes else None}
        reply = await call
        answer = {"status": reply.status.code}
        entries = [each.status.code for each in getattr(reply, "entries", ())]
        return {**answer, "entries": entries} if entries else answer

    def _begun(self, case: Case, request: Request | bytes) -> Any:
        method = messages.METHODS.get(case.rpc)
        if isinstance(request, bytes):
            data = request
        elif method is None:
            data = b""
        else:
            data = method.request(**self._named(request)).SerializeToString()
        path = f"/{messages.SERVICE}/{case.rpc}"
        parse = method.reply.FromString if method else bytes
        if method is not None and method.streams_replies:
            stream = self._channel.unary_stream(path, response_deserializer=parse)
            return stream(data, metadata=self._metadata(case), timeout=case.timeout_s)
        unary = self._channel.unary_unary(path, response_deserializer=parse)
        return unary(data, metadata=self._metadata(case), timeout=case.timeout_s)

    def _named(self, request: Request) -> Request:
        """The same, with the broker's name in place."""
        queue = request.get("message_queue")
        if not queue or queue.get("broker") != {"name": "BROKER"}:
            return request
        return {**request, "message_queue": {**queue, "broker": {"name": self._broker}}}

    def _metadata(self, case: Case) -> list[tuple[str, str]]:
        client = case.client
        if client in ("newcomer", "stranger"):
            client = f"{client}-{next(self._numbers)}"
        fields = [
            ("x-mq-language", case.language),
            ("x-mq-client-version", "5.0.8"),
            ("x-mq-protocol", "v2"),
        ]
        return fields if client is None else [*fields, ("x-mq-client-id", client)]

    async def _telemetry(self, case: Case, request: Request) -> Answer:
        stream = self._stream(case)
        try:
            await stream.write(messages.TelemetryCommand(**request))
            async with asyncio.timeout(case.timeout_s):
                reply = await stream.read()
        except TimeoutError:
            return {"silent": True}
        except asyncio.InvalidStateError:
            return {"grpc": (await stream.code()).name}
        finally:
            if case.client == "newcomer" or case.client is None:
                stream.cancel()
        if reply is grpc.aio.EOF:
            return {"grpc": (await stream.code()).name}
        return {"status": reply.status.code, "command": reply.WhichOneof("command")}

    def _stream(self, case: Case) -> Any:
        method = messages.METHODS["Telemetry"]
        begin = self._channel.stream_stream(
            f"/{messages.SERVICE}/Telemetry",
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.reply.FromString,
        )
        stream = begin(metadata=self._metadata(case))
        self._streams.append(stream)
        return stream

    async def _prepare(self) -> None:
        await topics.until_registered(self._nameserver)
        async with Admin(self._nameserver) as admin:
            for topic, kind in TOPICS.items():
                await topics.make_topic(admin, topic, kind)
                await topics.make_group(admin, GROUP, topic)
            await topics.make_group(admin, FIFO_GROUP, "sc-fifo", is_ordered=True)
            self._broker = (await admin.masters())[0].name
        publishing = {"topics": [named(topic) for topic in TOPICS]}
        subscription = {
            "group": named(GROUP),
            "subscriptions": [
                {"topic": named(topic), "expression": {"type": 1, "expression": "*"}}
                for topic in ("sc-handles", "sc-empty")
            ],
        }
        for client, content in (
            ("producer", {"client_type": 1, "publishing": publishing}),
            ("consumer", {"client_type": 3, "subscription": subscription}),
        ):
            await self._call(Case("Telemetry", {}, client=client), {"settings": content})

    async def _handle(self) -> str:
        """Of a first delivery: one that another case gave back lies in a topic of its group."""
        await self._begun(Case("SendMessage", b""), {"messages": [message("sc-handles")]})
        queue = {"topic": named("sc-handles"), "id": 0, "broker": {"name": "BROKER"}}
        request = received(message_queue=queue, invisible_duration={"seconds": 300})
        while True:
            case = Case("ReceiveMessage", b"", client="consumer")
            async for reply in self._begun(case, request):
                system = reply.message.system_properties
                if system.delivery_attempt == 1:
                    return str(system.receipt_handle)

    async def _transaction(self) -> str:
        sent = message("sc-transaction", message_type=4)
        reply = await self._begun(Case("SendMessage", b""), {"messages": [sent]})
        return str(reply.entries[0].transaction_id)

    async def _recall(self) -> str:
        sent = _delayed()
        reply = await self._begun(Case("SendMessage", b""), {"messages": [sent]})
        return str(reply.entries[0].recall_handle)


def _delayed() -> Request:
    case = corpus()["delay"].request
    assert isinstance(case, Mapping)
    sent: Request = case["messages"][0]
    return sent


def ask(endpoint: str, nameserver: str) -> dict[str, Answer]:
    """Ask *endpoint* everything."""

    async def asked() -> dict[str, Answer]:
        return await Asker(endpoint, nameserver).answers()

    return asyncio.run(asked())


def main() -> None:
    """Write Apache's answers."""
    with tempfile.TemporaryDirectory() as directory:
        proxy = apache_proxy.start(
            Path(directory),
            settings={"recallMessageEnable": "true", "enableMixedMessageType": "true"},
        )
        try:
            answers = ask(proxy.endpoint, proxy.nameserver)
        finally:
            proxy.kill()
    lines = (f"  {json.dumps(name)}: {json.dumps(answers[name])}" for name in answers)
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
