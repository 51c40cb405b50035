"""Runs of messages: when they need no look at each."""

import pytest

from rockhopper.broker.features.sinks.runs import messages_of, plain_count
from rockhopper.protocol.bodies.sinks import SinkMessage, SinkRun
from rockhopper.protocol.errors import MalformedBatchError
from rockhopper.protocol.store.message_codec import encode_batch


def run(*properties: bytes) -> SinkRun:
    return SinkRun("T", 2, 1234, encode_batch([(5, b"body", each) for each in properties]))


def test_plain_messages_with_an_id_are_counted() -> None:
    assert plain_count(run(b"UNIQ_KEY\x01A\x02", b"UNIQ_KEY\x01B\x02TAGS\x01t")) == 2


@pytest.mark.parametrize(
    "properties", [b"", b"UNIQ_KEY\x01A\x02DELAY\x011", b"UNIQ_KEY\x01A\x02RH_SINK\x01x:0:1"]
)
def test_others_must_be_looked_at(properties: bytes) -> None:
    assert plain_count(run(b"UNIQ_KEY\x01A", properties)) == 0


def test_room_behind_the_properties_is_kept() -> None:
    long = run(b"UNIQ_KEY\x01A\x02k\x01" + b"v" * 32_000)
    assert (plain_count(long, 700), plain_count(long, 800)) == (1, 0)


def test_they_are_messages_one_by_one_as_well() -> None:
    assert messages_of(run(b"k\x01v\x02", b"")) == [
        SinkMessage("T", 2, 5, 1234, "k\x01v\x02", b"body"),
        SinkMessage("T", 2, 5, 1234, "", b"body"),
    ]
    with pytest.raises(MalformedBatchError):
        messages_of(SinkRun("T", 2, 0, b"\0\0\0\7abc"))
