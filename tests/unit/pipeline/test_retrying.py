"""What is tried again, and what is said when it never works."""

import pickle

import pytest

from rockhopper.client.errors import (
    BrokerUnreachableError,
    ClientError,
    RequestRefusedError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.retrying import Patience, is_passing
from rockhopper.protocol.codes import RequestCode, ResponseCode


def failed(cause: ClientError | None) -> PipelineError:
    error = PipelineError("it did not work")
    error.__cause__ = cause
    return error


def refused(code: ResponseCode) -> RequestRefusedError:
    return RequestRefusedError(RequestCode.PULL_MESSAGE, code, "no", "10.0.0.1:10911")


class Attempts:
    """Fails some times, then returns "done"."""

    def __init__(self, *failures: PipelineError) -> None:
        self.left = list(failures)
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        if self.left:
            raise self.left.pop(0)
        return "done"


@pytest.mark.parametrize(
    ("cause", "passes"),
    [
        (BrokerUnreachableError("away"), True),
        (RequestTimeoutError(RequestCode.PULL_MESSAGE, "10.0.0.1:10911", 3.0), True),
        (RouteNotFoundError("no route"), True),
        (refused(ResponseCode.SYSTEM_BUSY), True),
        (refused(ResponseCode.TOPIC_NOT_EXIST), False),
        (refused(ResponseCode.MESSAGE_ILLEGAL), False),
        (None, False),
    ],
)
def test_what_may_pass(cause: ClientError | None, passes: bool) -> None:
    assert is_passing(failed(cause)) is passes


def test_it_works_in_the_end() -> None:
    away = [failed(BrokerUnreachableError("away")) for _ in range(3)]
    attempts = Attempts(*away)
    assert Patience(3, 0.0)("T could not be read", attempts) == "done"
    assert attempts.count == 4


def test_it_never_works() -> None:
    attempts = Attempts(*(failed(BrokerUnreachableError("away")) for _ in range(9)))
    with pytest.raises(PipelineError) as caught:
        Patience(2, 0.0)("T could not be read", attempts)
    assert attempts.count == 3
    assert str(caught.value) == (
        "T could not be read, after 3 tries (it did not work): check that the broker runs and is "
        "reachable from here, then start the job again"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_what_will_not_pass_is_said_at_once() -> None:
    attempts = Attempts(failed(refused(ResponseCode.NO_PERMISSION)))
    with pytest.raises(PipelineError, match="it did not work"):
        Patience(9, 0.0)("T could not be read", attempts)
    assert attempts.count == 1
