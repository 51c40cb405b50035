"""InFlightRequests: deadlines, silence, and requests that waited for a busy event loop."""

import asyncio

import pytest

from rockhopper.client.errors import BrokerUnreachableError, RequestTimeoutError
from rockhopper.client.network.in_flight_requests import InFlightRequests
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command

PULL, ASK = int(RequestCode.PULL_MESSAGE), int(RequestCode.GET_MAX_OFFSET)


class Sent:
    """Requests that are sent at given times."""

    def __init__(self) -> None:
        self.pending = InFlightRequests("broker:1")
        self.futures: list[asyncio.Future[Command]] = []

    def send(self, at_s: float, timeout_s: float = 3.0, code: int = ASK) -> None:
        future = asyncio.get_running_loop().create_future()
        self.pending[len(self.futures)] = (future, at_s + timeout_s, code, timeout_s)
        self.futures.append(future)
        if self.pending.silent_since_s is None:
            self.pending.silent_since_s = at_s


@pytest.fixture
async def sent() -> Sent:
    return Sent()


async def test_only_overdue_requests_end(sent: Sent) -> None:
    sent.send(0.0, timeout_s=5.0)
    sent.send(1.0, timeout_s=2.0)
    assert sent.pending.next_deadline_s == 3.0

    sent.pending.expire(3.0)

    assert list(sent.pending) == [0]
    assert sent.pending.next_deadline_s == 5.0
    with pytest.raises(RequestTimeoutError, match=r"broker:1 did not answer .* within 2 s"):
        sent.futures[1].result()


async def test_a_timeout_with_nothing_received_since_the_request_is_reported(sent: Sent) -> None:
    sent.send(0.0)
    assert sent.pending.expire(3.0)


async def test_a_late_answer_of_a_peer_that_lives_is_no_silence(sent: Sent) -> None:
    sent.send(0.0)
    sent.pending.silent_since_s = None  # data was received
    assert not sent.pending.expire(3.0)

    sent.send(4.0)
    sent.pending.silent_since_s = 5.0  # data was received, and another request sent
    assert not sent.pending.expire(7.0)


async def test_a_long_poll_without_an_answer_is_no_silence(sent: Sent) -> None:
    sent.send(0.0, code=PULL)
    assert not sent.pending.expire(3.0)


async def test_a_timeout_below_a_second_is_no_silence(sent: Sent) -> None:
    sent.send(0.0, timeout_s=0.5)
    assert not sent.pending.expire(0.9)


async def test_a_request_has_waited_after_a_second_unless_it_is_a_long_poll(sent: Sent) -> None:
    sent.send(0.0, code=PULL)
    assert not sent.pending.has_waited(2.0)

    sent.send(1.5)
    assert not sent.pending.has_waited(2.4)
    assert sent.pending.has_waited(2.5)


async def test_the_time_before_a_request_could_be_written_does_not_count(sent: Sent) -> None:
    for _ in range(3):
        sent.send(0.0)

    sent.pending.extend_newest(2, 20.0, 20.0)
    sent.pending.expire(3.0)

    assert [future.done() for future in sent.futures] == [True, False, False]
    assert sent.pending.next_deadline_s == 23.0
    assert sent.pending.silent_since_s == 20.0


async def test_the_silence_never_begins_in_the_future(sent: Sent) -> None:
    sent.send(10.0)
    sent.pending.extend_newest(1, 5.0, 12.0)
    assert sent.pending.silent_since_s == 12.0


async def test_each_request_fails_with_an_error_of_its_own(sent: Sent) -> None:
    for _ in range(3):
        sent.send(0.0)
    sent.futures[1].cancel()

    sent.pending.fail(lambda: BrokerUnreachableError("gone"))

    errors = [sent.futures[number].exception() for number in (0, 2)]
    assert all(isinstance(error, BrokerUnreachableError) for error in errors)
    assert errors[0] is not errors[1]
    assert not sent.pending


async def test_an_overdue_request_that_was_cancelled_is_forgotten(sent: Sent) -> None:
    sent.send(0.0)
    sent.futures[0].cancel()
    sent.pending.expire(3.0)
    assert not sent.pending
