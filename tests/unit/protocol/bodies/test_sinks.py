"""Bodies of the sink codes."""

from collections.abc import Callable

import pytest

from rockhopper.protocol.bodies.sinks import (
    SinkMessage,
    SinkPart,
    SinkRun,
    decode_sink_item,
    decode_sink_part_names,
    decode_sink_parts,
    encode_sink_body,
    split_sink_items,
)
from rockhopper.protocol.errors import MalformedBodyError

MESSAGE = SinkMessage("T", -1, 3, 1_700_000_000_000, "KEYS\x01k\x02", b"\x00body")


def test_messages_are_split_first_and_decoded_one_by_one() -> None:
    raw = split_sink_items(encode_sink_body([MESSAGE, MESSAGE]))
    assert [decode_sink_item(part) for part in raw] == [MESSAGE, MESSAGE]


def test_a_message_is_a_positional_array() -> None:
    assert encode_sink_body([SinkMessage("T", 1, 0, 2, "", b"b")]) == (
        b"\x91\x96\xa1T\x01\x00\x02\xa0\xc4\x01b"
    )


def test_a_run_stands_among_messages() -> None:
    run = SinkRun("T", 1, 2, b"batch")
    items: list[SinkMessage | SinkRun] = [MESSAGE, run]
    body = encode_sink_body(items)
    assert body.endswith(b"\x94\xa1T\x01\x02\xc4\x05batch")
    assert [decode_sink_item(part) for part in split_sink_items(body)] == items


def test_parts_keep_their_order() -> None:
    parts = [SinkPart("b", 2), SinkPart("a", 0)]
    assert encode_sink_body(parts) == b"\x92\x92\xa1b\x02\x92\xa1a\x00"
    assert decode_sink_parts(encode_sink_body(parts)) == parts


def test_no_body_means_all_parts() -> None:
    assert decode_sink_part_names(b"") == []
    assert decode_sink_part_names(encode_sink_body(["a", "b"])) == ["a", "b"]


@pytest.mark.parametrize("decode", [split_sink_items, decode_sink_parts, decode_sink_part_names])
@pytest.mark.parametrize("body", [b"\x07", b"\x91", b"\x81\xa1a\x01", b"\xc1"])
def test_garbage_is_refused(decode: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode(body)


@pytest.mark.parametrize(
    "parts", [[], ["T"], ["T", "0", 0, 0, "", b""], ["T", 0, 0, 0, b"\xff", b""], [7] * 6]
)
def test_a_message_of_another_shape_is_refused(parts: list[object]) -> None:
    (raw,) = split_sink_items(encode_sink_body([parts]))  # type: ignore[arg-type]
    with pytest.raises(MalformedBodyError, match="does not decode"):
        decode_sink_item(raw)
