"""A pure-Python asyncio client for RocketMQ brokers."""

from client.admin import Admin
from client.consumer import Consumer
from client.consuming.redelivery import RetryLater
from client.errors import (
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
from client.filters import Sql
from client.producer import Producer
from client.pull_consumer import PullConsumer
from client.receipts import SendReceipt
from client.transactions import Transaction, TransactionProducer, TransactionState
from protocol.message import Message

__all__ = [
    "Admin",
    "BrokerUnreachableError",
    "ClientError",
    "ClientStateError",
    "Consumer",
    "EarlierSendFailedError",
    "MalformedAnswerError",
    "Message",
    "MessageNotFoundError",
    "MessageRejectedError",
    "Producer",
    "PullConsumer",
    "ReplyTimeoutError",
    "RequestRefusedError",
    "RequestTimeoutError",
    "RetryLater",
    "RouteNotFoundError",
    "SendReceipt",
    "Sql",
    "Transaction",
    "TransactionProducer",
    "TransactionState",
]
