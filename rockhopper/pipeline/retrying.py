"""Trying again what fails for a while: a broker that restarts, a name service that is away."""

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

# Answers that the same broker may not give a moment later.
_PASSING_CODES = frozenset(
    {
        int(ResponseCode.SYSTEM_BUSY),
        int(ResponseCode.SERVICE_NOT_AVAILABLE),
        int(ResponseCode.GO_AWAY),
    }
)


def is_passing(error: PipelineError) -> bool:
    """Whether the same request may succeed a moment later."""
    cause = error.__cause__
    if isinstance(cause, RequestRefusedError):
        return cause.code in _PASSING_CODES
    return isinstance(cause, BrokerUnreachableError | RequestTimeoutError | RouteNotFoundError)


def is_unknown_topic(error: PipelineError) -> bool:
    """Whether a broker does not have the topic, or none has it."""
    cause = error.__cause__
    if isinstance(cause, RequestRefusedError):
        return cause.code == ResponseCode.TOPIC_NOT_EXIST
    return isinstance(cause, RouteNotFoundError)


@dataclass(frozen=True)
class Patience:
    """How often, and how long apart, something is tried again."""

    retries: int
    pause_s: float

    def __call__(self, what: str, attempt: Callable[[], _Value]) -> _Value:
        """The value of *attempt*, tried again while its failures may pass.

        Raises:
            PipelineError: it failed for good; for one that might pass, *what* could not be done.
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
                        f"{what}, after {failures} tries ({error.sentence}): see that the broker "
                        "runs and can be reached from here, then start the job again"
                    ) from error
                time.sleep(self.pause_s)
