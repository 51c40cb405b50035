"""Retry operations with temporary failures: a broker restarts, a name server is offline."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rockhopper.client.errors import (
    BrokerUnreachableError,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rockhopper.pipeline.errors import PipelineError
from rockhopper.protocol.codes import ResponseCode

_Value = TypeVar("_Value")

# Errors that may disappear a moment later.
_PASSING_CODES = frozenset(
    {
        int(ResponseCode.SYSTEM_BUSY),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.GO_AWAY),
    }
)


def is_passing(error: PipelineError) -> bool:
    """Return whether the same request may succeed a moment later."""
    cause = error.__cause__
    if isinstance(cause, RequestRefusedError):
        return cause.code in _PASSING_CODES
    return isinstance(cause, BrokerUnreachableError | RequestTimeoutError | RouteNotFoundError)


def is_unknown_topic(error: PipelineError) -> bool:
    """Return whether a broker, or every broker, lacks the topic."""
    cause = error.__cause__
    if isinstance(cause, RequestRefusedError):
        return cause.code == ResponseCode.TOPIC_NOT_EXIST
    return isinstance(cause, RouteNotFoundError)


@dataclass(frozen=True)
class Patience:
    """The number of retries and the pause between them."""

    retries: int
    pause_s: float

    def __call__(self, what: str, attempt: Callable[[], _Value]) -> _Value:
        """Return the value of *attempt*; retry while its failures are temporary.

        Raises:
            PipelineError: the failure is permanent, or no retry is left; the message names *what*.
        """
        failures = 0
        while True:
            try:
                return attempt()
            except PipelineError as error:
                if not is_passing(error):
                    raise
                failures += 1
                if failures > self.retries:
                    raise PipelineError(
                        f"{what}, after {failures} tries ({error.sentence}): check that the "
                        "broker runs and is reachable from here, then start the job again"
                    ) from error
                time.sleep(self.pause_s)
