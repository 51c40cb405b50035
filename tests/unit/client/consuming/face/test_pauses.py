"""What is paused, by name; and what that means for single messages."""

from typing import Any

import pytest

from rockhopper.client.consuming.face.pauses import Pauses
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage

A, B = MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1)
RETRY = MessageQueue("%RETRY%billing", "a", 0)


def test_a_queue_a_topic_and_everything_are_paused_apart() -> None:
    pauses = Pauses(RETRY.topic)
    pauses.pause(A)
    assert (pauses.cover(A), pauses.cover(B)) == (True, False)
    pauses.pause("orders")
    pauses.resume(A)
    assert (pauses.cover(A), pauses.cover(RETRY), pauses.list_paused(())) == (
        True,
        False,
        ["orders"],
    )
    pauses.pause()
    assert pauses.list_paused(["returns"]) == ["orders", "returns"]
    pauses.resume("orders")
    assert pauses.cover(RETRY)
    pauses.resume()
    assert (pauses.cover(A), pauses.cover(RETRY)) == (False, False)


def test_what_comes_again_is_paused_with_its_topic() -> None:
    pauses = Pauses(RETRY.topic)
    pauses.pause("orders")
    assert pauses.split(RETRY)
    assert not pauses.may_be(ReceivedMessage(RETRY, StoredMessage("orders", 0, 0, 0, b"")))
    assert pauses.may_be(ReceivedMessage(RETRY, StoredMessage("returns", 0, 0, 0, b"")))


@pytest.mark.parametrize(("what", "error"), [(7, TypeError), ("or ders", ValueError)])
def test_what_can_be_no_topic_is_refused(what: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Pauses(None).pause(what)
