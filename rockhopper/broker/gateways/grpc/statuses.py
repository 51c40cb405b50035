"""Statuses: converts errors to the codes that clients receive.

They are more specific than those of RocketMQ's proxy in local mode, which returns 50001 for nearly
everything that its broker refuses.

    Refusal of broker/users         the code of its class, in REFUSAL_CODES
    GrpcStatusError                 its own
    StoreError                      41301 too large, 42900 too much waits, else 50001
    anything else                   50001, and one line in the log, because it is a bug of ours
"""

from typing import Any

import structlog

from rockhopper.broker.store.files.errors import (
    NotReplicatedError,
    RecordTooLargeError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.users import errors
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import Status

log = structlog.get_logger("broker.grpc")

REFUSAL_CODES: dict[type[errors.Refusal], Code] = {
    errors.Refusal: Code.INTERNAL_SERVER_ERROR,
    errors.FilterNotFound: Code.ILLEGAL_FILTER_EXPRESSION,
    errors.GroupNotFound: Code.CONSUMER_GROUP_NOT_FOUND,
    errors.IllegalMessage: Code.MESSAGE_CORRUPTED,
    errors.IllegalOperation: Code.PRECONDITION_FAILED,
    errors.InvalidParameter: Code.BAD_REQUEST,
    errors.NoPermission: Code.FORBIDDEN,
    errors.NotAuthenticated: Code.UNAUTHORIZED,
    errors.SubscriptionNotFound: Code.BAD_REQUEST,
    errors.SubscriptionNotParsed: Code.ILLEGAL_FILTER_EXPRESSION,
    errors.SubscriptionOutdated: Code.BAD_REQUEST,
    errors.TooManyWait: Code.TOO_MANY_REQUESTS,
    errors.TopicNotFound: Code.TOPIC_NOT_FOUND,
}


class GrpcStatusError(errors.Refusal):
    """A refusal with a code that only this protocol has."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


OK = Status(code=Code.OK, message="OK")
"""Never modify it: it is copied into replies."""


def status(code: Code, text: str) -> Status:
    """Return a status for a reply."""
    return Status(code=code, message=errors.shorten(text))


def status_of(error: Exception) -> Status:
    """Return the status for *error*, and log an unexpected error."""
    if isinstance(error, GrpcStatusError):
        return status(error.code, str(error))
    if isinstance(error, errors.Refusal):
        return status(REFUSAL_CODES[type(error)], str(error))
    if isinstance(error, RecordTooLargeError):
        return status(Code.MESSAGE_BODY_TOO_LARGE, str(error))
    if isinstance(error, StoreBusyError):
        return status(Code.TOO_MANY_REQUESTS, str(error))
    if isinstance(error, (StoreError, OSError)):
        return status(Code.INTERNAL_SERVER_ERROR, f"service not available now. {error}")
    if isinstance(error, ProtocolError):
        return status(Code.BAD_REQUEST, str(error))
    log.error("call failed", exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def build_unconfirmed_status(error: StoreError) -> Status:
    """Return the status of a message that is in the log but not safe because of *error*."""
    if isinstance(error, StoreFailedError):
        return status(Code.INTERNAL_SERVER_ERROR, str(error))
    if isinstance(error, NotReplicatedError):
        return status(Code.SLAVE_PERSISTENCE_TIMEOUT, str(error))
    return status(Code.MASTER_PERSISTENCE_TIMEOUT, str(error))


def millis_of(time: Any, code: Code, what: str) -> int:
    """Convert a protobuf time or duration to ms. Raises GrpcStatusError if it is invalid."""
    try:
        return int(time.ToMilliseconds())
    except ValueError as error:
        raise GrpcStatusError(code, f"{what} is invalid: {error}") from None
