"""Bodies of BULK_PULL_QUEUES."""

import pytest

from rockhopper.protocol.bodies.queue_ranges import (
    QueueRange,
    QueueRead,
    decode_queue_ranges,
    decode_queue_reads,
    encode_queue_ranges,
)
from rockhopper.protocol.errors import MalformedBodyError


def test_both_are_positional_arrays() -> None:
    ranges = [QueueRange(3, 0, 9), QueueRange(4, 5, 6)]
    assert encode_queue_ranges(ranges) == b"\x92\x93\x03\x00\x09\x93\x04\x05\x06"
    assert decode_queue_ranges(encode_queue_ranges(ranges)) == ranges
    reads = [QueueRead(0, 9, 0, 9, b"ab")]
    assert encode_queue_ranges(reads) == b"\x91\x95\x00\x09\x00\x09\xc4\x02ab"
    assert decode_queue_reads(encode_queue_ranges(reads)) == reads


@pytest.mark.parametrize("body", [b"", b"\x91\x92\x00\x00", b"\x91\x93\xa1a\x00\x00", b"\xc1"])
def test_garbage_is_refused(body: bytes) -> None:
    for decode in (decode_queue_ranges, decode_queue_reads):
        with pytest.raises(MalformedBodyError, match="does not decode"):
            decode(body)
