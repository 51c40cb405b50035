"""Rockhopper, a message broker that speaks RocketMQ's protocol, and its client.

    from rockhopper import Broker, Consumer, Message, Producer

Each name is imported at its first use: a program that only sends loads nothing of the broker or of
the pipeline.
"""

from importlib import import_module

TYPE_CHECKING = False  # Type checkers know this name: importing typing takes 5 ms.
if TYPE_CHECKING:
    from typing import Any

    from rockhopper.broker import Broker
    from rockhopper.broker.testing.threaded import ThreadedBroker
    from rockhopper.client import (
        JSON,
        Admin,
        App,
        BodyError,
        BrokerUnreachableError,
        ClientError,
        ClientStateError,
        Connections,
        Consumer,
        Credentials,
        EarlierSendFailedError,
        Linger,
        MalformedAnswerError,
        Message,
        MessageNotFoundError,
        MessageQueue,
        MessageRejectedError,
        Middleware,
        MsgPack,
        NotAllSentError,
        Processing,
        Producer,
        PullConsumer,
        Pydantic,
        ReceivedMessage,
        Receiving,
        ReplyTimeoutError,
        RequestRefusedError,
        RequestTimeoutError,
        RetryLater,
        RouteNotFoundError,
        Sending,
        SendReceipt,
        SendStatus,
        Serializer,
        Sql,
        TlsOptions,
        Transaction,
        TransactionProducer,
        TransactionState,
    )

__all__ = [
    "JSON",
    "Admin",
    "App",
    "BodyError",
    "Broker",
    "BrokerUnreachableError",
    "ClientError",
    "ClientStateError",
    "Connections",
    "Consumer",
    "Credentials",
    "EarlierSendFailedError",
    "Linger",
    "MalformedAnswerError",
    "Message",
    "MessageNotFoundError",
    "MessageQueue",
    "MessageRejectedError",
    "Middleware",
    "MsgPack",
    "NotAllSentError",
    "Processing",
    "Producer",
    "PullConsumer",
    "Pydantic",
    "ReceivedMessage",
    "Receiving",
    "ReplyTimeoutError",
    "RequestRefusedError",
    "RequestTimeoutError",
    "RetryLater",
    "RouteNotFoundError",
    "SendReceipt",
    "SendStatus",
    "Sending",
    "Serializer",
    "Sql",
    "ThreadedBroker",
    "TlsOptions",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
]

_PARTS = ("broker", "client", "pipeline", "protocol")
_ELSEWHERE = {
    "Broker": "rockhopper.broker",
    "ThreadedBroker": "rockhopper.broker.testing.threaded",
}


def __getattr__(name: str) -> "Any":
    if name in _PARTS or name == "sync":
        return import_module(f"{__name__}.{name}")
    if name in __all__:
        value = getattr(import_module(_ELSEWHERE.get(name, "rockhopper.client")), name)
        globals()[name] = value
        return value
    if name == "__version__":
        from rockhopper.version import own_version

        return own_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_PARTS, "sync", "__version__"})
