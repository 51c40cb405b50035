"""A pure-Python asyncio client for RocketMQ brokers."""

from client.admin import Admin
from client.errors import (
    BrokerUnreachableError,
    ClientError,
    ClientStateError,
    MalformedAnswerError,
    MessageNotFoundError,
    MessageRejectedError,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from client.producer import Producer
from client.pull_consumer import PullConsumer
from protocol.message import Message

__all__ = [
    "Admin",
    "BrokerUnreachableError",
    "ClientError",
    "ClientStateError",
    "MalformedAnswerError",
    "Message",
    "MessageNotFoundError",
    "MessageRejectedError",
    "Producer",
    "PullConsumer",
    "RequestRefusedError",
    "RequestTimeoutError",
    "RouteNotFoundError",
]
