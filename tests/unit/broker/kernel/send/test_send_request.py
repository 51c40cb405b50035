"""What a send says of waiting: only a producer that says false does not wait for the disk."""

import pytest

from rockhopper.broker.kernel.send.send_request import waits_for_disk


@pytest.mark.parametrize(
    ("properties", "waits"),
    [
        ("", True),
        ("WAIT\x01true\x02", True),
        ("WAIT\x01false\x02", False),
        ("TAGS\x01a\x02WAIT\x01false", False),
        ("TAGS\x01false\x02", True),
        ("WAIT\x01false\x02WAIT\x01true\x02", True),
        ("XWAIT\x01false\x02", True),
        ("WAIT\x01falsehood\x02", True),
    ],
)
def test_a_producer_waits_unless_it_says_false(properties: str, waits: bool) -> None:
    assert waits_for_disk(properties) is waits
