"""Calls of RocketMQ 5 clients, in the names of the users of grants.py."""

import asyncio
import hashlib
import hmac
from collections.abc import Mapping
from typing import Any

import grpc

from rockhopper.protocol.grpc_v2 import messages
from rockhopper.protocol.signing import Credentials
from tests.interop.acl.requests import DEAD_LETTERS, GROUP, TOPIC
from tests.support.hang import HANG_S

Request = Mapping[str, Any]
_DATE = "20260101T000000Z"
_REFUSED = 40100
_ENDPOINTS = {"scheme": 1, "addresses": [{"host": "127.0.0.1", "port": 8081}]}
_FILTER = {"type": 1, "expression": "*"}
_SECONDS = {"seconds": 30}


def _named(name: str) -> Request:
    return {"name": name}


def _sent(topic: str) -> Request:
    system = {
        "message_id": "01000000000000000000000000000000AB",
        "message_type": 1,
        "born_timestamp": {"seconds": 1_700_000_000},
    }
    return {"messages": [{"topic": _named(topic), "body": b"x", "system_properties": system}]}


_BOTH: dict[str, Any] = {"topic": _named(TOPIC), "group": _named(GROUP)}


def _received(topic: str) -> Request:
    return {
        "group": _named(GROUP),
        "message_queue": {"topic": _named(topic), "id": 0, "broker": {"name": "nobody"}},
        "filter_expression": _FILTER,
        "batch_size": 1,
        "invisible_duration": _SECONDS,
        "long_polling_timeout": {"seconds": 1},
    }


CALLS: dict[str, tuple[str, Request]] = {
    "route": ("QueryRoute", {"topic": _named(TOPIC), "endpoints": _ENDPOINTS}),
    "send": ("SendMessage", _sent(TOPIC)),
    "end a transaction": (
        "EndTransaction",
        {
            "topic": _named(TOPIC),
            "message_id": "x",
            "transaction_id": "x",
            "resolution": 1,
            "source": 1,
        },
    ),
    "recall": ("RecallMessage", {"topic": _named(TOPIC), "recall_handle": "x"}),
    "heartbeat of a producer": ("Heartbeat", {"client_type": 1}),
    "heartbeat of a consumer": ("Heartbeat", {"client_type": 3, "group": _named(GROUP)}),
    "leave": ("NotifyClientTermination", {"group": _named(GROUP)}),
    "assignment": ("QueryAssignment", {**_BOTH, "endpoints": _ENDPOINTS}),
    "receive": ("ReceiveMessage", _received(TOPIC)),
    "receive dead letters": ("ReceiveMessage", _received(DEAD_LETTERS)),
    "acknowledge": ("AckMessage", {**_BOTH, "entries": [{"receipt_handle": "x"}]}),
    "change invisible time": (
        "ChangeInvisibleDuration",
        {**_BOTH, "receipt_handle": "x", "invisible_duration": _SECONDS},
    ),
    "forward": (
        "ForwardMessageToDeadLetterQueue",
        {**_BOTH, "receipt_handle": "x", "message_id": "x"},
    ),
    "settings of a producer": (
        "Telemetry",
        {"settings": {"client_type": 1, "publishing": {"topics": [_named(TOPIC)]}}},
    ),
    "settings of a consumer": (
        "Telemetry",
        {
            "settings": {
                "client_type": 3,
                "subscription": {
                    "group": _named(GROUP),
                    "subscriptions": [{"topic": _named(TOPIC), "expression": _FILTER}],
                },
            }
        },
    ),
}


class GrpcCaller:
    """Asks one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.aio.insecure_channel(endpoint)

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def allows(self, name: str, user: Credentials | None) -> bool:
        """Whether whoever asks got past the permissions, whatever came of the call then."""
        rpc, request = CALLS[name]
        try:
            async with asyncio.timeout(HANG_S):
                code = await self._code(rpc, request, user)
        except grpc.aio.AioRpcError as error:
            return error.code() not in (
                grpc.StatusCode.UNAUTHENTICATED,
                grpc.StatusCode.PERMISSION_DENIED,
            )
        return code != _REFUSED

    async def _code(self, rpc: str, request: Request, user: Credentials | None) -> int | None:
        method = messages.METHODS[rpc]
        path = f"/{messages.SERVICE}/{rpc}"
        data, parse = method.request(**request), method.reply.FromString
        sign = method.request.SerializeToString
        metadata = _metadata(user)
        if rpc == "Telemetry":
            stream = self._channel.stream_stream(path, sign, parse)(metadata=metadata)
            await stream.write(data)
            reply = await stream.read()
            code = (await stream.code()) if reply is grpc.aio.EOF else None
            stream.cancel()
            if code is not None:
                raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())
            return int(reply.status.code)
        if method.streams_replies:
            call = self._channel.unary_stream(path, sign, parse)(data, metadata=metadata)
            codes = [each.status.code async for each in call if each.HasField("status")]
            return codes[0] if codes else None
        reply = await self._channel.unary_unary(path, sign, parse)(data, metadata=metadata)
        return int(reply.status.code)


def _metadata(user: Credentials | None) -> list[tuple[str, str]]:
    fields = [
        ("x-mq-client-id", user.access_key if user else "nobody"),
        ("x-mq-language", "JAVA"),
        ("x-mq-client-version", "5.0.8"),
        ("x-mq-protocol", "v2"),
    ]
    if user is None:
        return fields
    signature = hmac.new(user.secret.encode(), _DATE.encode(), hashlib.sha1).hexdigest()
    text = (
        f"MQv2-HMAC-SHA1 Credential={user.access_key}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature.upper()}"
    )
    return [*fields, ("x-mq-date-time", _DATE), ("authorization", text)]
