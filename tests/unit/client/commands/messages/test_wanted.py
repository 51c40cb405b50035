"""Which messages are wanted."""

import click
import pytest

from rockhopper.client.commands.messages.wanted import LocalFilter
from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.message import StoredMessage


def received(body: bytes, **properties: str) -> ReceivedMessage:
    stored = StoredMessage("orders", 3, 17, 4096, body, properties=properties)
    return ReceivedMessage(MessageQueue("orders", "broker-a", 3), stored)


@pytest.mark.parametrize(
    ("pattern", "pairs", "is_wanted"),
    [
        (None, [], True),
        ("pa.d", [], True),
        ("PAID", [], False),
        ("(?i)PAID", [], True),
        (None, ["region=eu=west"], True),
        (None, ["region=eu"], False),
        (None, ["region=eu=west", "TAGS=new"], True),
        (None, ["region=eu=west", "TAGS=old"], False),
        (None, ["KEYS=o-2"], True),
        (None, ["KEYS=o-3"], False),
        ("refused", ["TAGS=new"], False),
    ],
)
def test_all_that_is_asked_must_be_so(
    pattern: str | None, pairs: list[str], is_wanted: bool
) -> None:
    message = received(b"\xff was paid", region="eu=west", TAGS="new", KEYS="o-1 o-2")
    wanted = LocalFilter.from_options(pattern, pairs)
    assert wanted(message) is is_wanted
    assert wanted.is_choosy is (pattern is not None or bool(pairs))


@pytest.mark.parametrize(("pattern", "pairs"), [("((", []), (None, ["region"]), (None, ["=x"])])
def test_what_cannot_be_read_is_refused(pattern: str | None, pairs: list[str]) -> None:
    with pytest.raises(click.UsageError, match=r"--(grep|where)"):
        LocalFilter.from_options(pattern, pairs)
