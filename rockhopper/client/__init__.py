"""A pure-Python asyncio client for RocketMQ brokers.

Each name is imported at its first use: a program that only sends loads nothing of consumers.
"""

from importlib import import_module

TYPE_CHECKING = False  # Type checkers know this name: importing typing takes 5 ms.
if TYPE_CHECKING:
    from typing import Any

    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.app.app import App
    from rockhopper.client.consumer import Consumer
    from rockhopper.client.consuming.redelivery import RetryLater
    from rockhopper.client.errors import (
        BodyError,
        BrokerUnreachableError,
        ClientError,
        ClientStateError,
        EarlierSendFailedError,
        MalformedAnswerError,
        MessageNotFoundError,
        MessageRejectedError,
        ReplyTimeoutError,
        RequestRefusedError,
        RequestTimeoutError,
        RouteNotFoundError,
    )
    from rockhopper.client.filters import Sql
    from rockhopper.client.middleware.hooks import Middleware, Processing, Receiving, Sending
    from rockhopper.client.network.sharing import Connections
    from rockhopper.client.network.tls import TlsOptions
    from rockhopper.client.producer import Producer
    from rockhopper.client.pull_consumer import PullConsumer
    from rockhopper.client.queues import MessageQueue
    from rockhopper.client.receipts import NotAllSentError, SendReceipt, SendStatus
    from rockhopper.client.received import ReceivedMessage
    from rockhopper.client.sending.lingering import Linger
    from rockhopper.client.serializers import JSON, MsgPack, Pydantic, Serializer
    from rockhopper.client.transactions import Transaction, TransactionProducer, TransactionState
    from rockhopper.protocol.message import Message
    from rockhopper.protocol.signing import Credentials

if not __name__.startswith("rockhopper."):
    raise ImportError(
        "this package is imported as rockhopper.client, and run as: python -m rockhopper.client"
    )

__all__ = [
    "JSON",
    "Admin",
    "App",
    "BodyError",
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
    "TlsOptions",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
]

_PLACES = {
    "JSON": "rockhopper.client.serializers",
    "Admin": "rockhopper.client.admin.admin",
    "App": "rockhopper.client.app.app",
    "BodyError": "rockhopper.client.errors",
    "BrokerUnreachableError": "rockhopper.client.errors",
    "ClientError": "rockhopper.client.errors",
    "ClientStateError": "rockhopper.client.errors",
    "Connections": "rockhopper.client.network.sharing",
    "Consumer": "rockhopper.client.consumer",
    "Credentials": "rockhopper.protocol.signing",
    "EarlierSendFailedError": "rockhopper.client.errors",
    "Linger": "rockhopper.client.sending.lingering",
    "MalformedAnswerError": "rockhopper.client.errors",
    "Message": "rockhopper.protocol.message",
    "MessageNotFoundError": "rockhopper.client.errors",
    "MessageQueue": "rockhopper.client.queues",
    "MessageRejectedError": "rockhopper.client.errors",
    "Middleware": "rockhopper.client.middleware.hooks",
    "MsgPack": "rockhopper.client.serializers",
    "NotAllSentError": "rockhopper.client.receipts",
    "Processing": "rockhopper.client.middleware.hooks",
    "Producer": "rockhopper.client.producer",
    "PullConsumer": "rockhopper.client.pull_consumer",
    "Pydantic": "rockhopper.client.serializers",
    "ReceivedMessage": "rockhopper.client.received",
    "Receiving": "rockhopper.client.middleware.hooks",
    "ReplyTimeoutError": "rockhopper.client.errors",
    "RequestRefusedError": "rockhopper.client.errors",
    "RequestTimeoutError": "rockhopper.client.errors",
    "RetryLater": "rockhopper.client.consuming.redelivery",
    "RouteNotFoundError": "rockhopper.client.errors",
    "SendReceipt": "rockhopper.client.receipts",
    "SendStatus": "rockhopper.client.receipts",
    "Sending": "rockhopper.client.middleware.hooks",
    "Serializer": "rockhopper.client.serializers",
    "Sql": "rockhopper.client.filters",
    "TlsOptions": "rockhopper.client.network.tls",
    "Transaction": "rockhopper.client.transactions",
    "TransactionProducer": "rockhopper.client.transactions",
    "TransactionState": "rockhopper.client.transactions",
}


def __getattr__(name: str) -> "Any":
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
