"""A pure-Python asyncio client for RocketMQ brokers."""

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
from rockhopper.client.receipts import SendReceipt, SendStatus
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
