"""Properties: the property strings of many messages at once, as one string is read."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from rockhopper.pipeline.decoder.properties import Properties
from rockhopper.protocol.properties import decode_properties

MAP = pa.map_(pa.string(), pa.string())
STRINGS = [
    b"",
    b"TAGS\x01new\x02KEYS\x01a b\x02",
    b"TAGS\x01new\x02KEYS\x01a b",
    b"TAGS\x01\x02KEYS\x01k\x02",
    b"\x01x\x02TAGS\x01t\x02",
    b"no pair\x02TAGS\x01t\x02",
    b"TAGS\x01one\x02TAGS\x01two\x02",
    b"a\x01b\x01c\x02TAGS\x01t\x02",
    b"\x02\x02TAGS\x01t\x02\x02",
    "größe\x01groß\x02TAGS\x01ü\x02".encode(),
    b"TAGS\x01\xff\xfe\x02",
    b"a-long-name-1\x01x\x02a-long-name-2\x01y\x02a-long-name-1\x01z\x02",
    b"".join(b"p%d\x01v%d\x02" % (n, n) for n in range(30)) + b"p7\x01again\x02",
]


def split(*strings: bytes) -> Properties:
    data, starts, ends = b"", [], []
    for text in strings:
        data += b"\x0a"
        starts.append(len(data))
        data += text
        ends.append(len(data))
    every = np.frombuffer(data, np.uint8)
    return Properties(every, np.array(starts, np.int64), np.array(ends, np.int64))


def maps(found: Properties) -> list[dict[str, str]]:
    rows: list[Any] = found.as_map(MAP).to_pylist()
    assert all(len(row) == len(dict(row)) for row in rows), "a name comes twice"
    return [dict(row) for row in rows]


@pytest.mark.parametrize("text", STRINGS)
def test_a_string_alone_is_read_as_the_protocol_reads_it(text: bytes) -> None:
    assert maps(split(text)) == [decode_properties(text)]


def test_many_strings_are_read_as_each_alone() -> None:
    assert maps(split(*STRINGS)) == [decode_properties(text) for text in STRINGS]
    assert maps(split(*STRINGS[::-1])) == [decode_properties(text) for text in STRINGS[::-1]]


@pytest.mark.parametrize("name", ["TAGS", "KEYS", "p7", "none"])
def test_one_property_of_each_message_and_null_where_it_is_not(name: str) -> None:
    expected = [decode_properties(text).get(name) for text in STRINGS]
    assert split(*STRINGS).values_of(name).to_pylist() == expected


def test_a_property_that_all_have_needs_no_nulls() -> None:
    found = split(b"TAGS\x01a\x02", b"x\x01y\x02TAGS\x01b\x02").values_of("TAGS")
    assert found.to_pylist() == ["a", "b"]
    assert found.null_count == 0


def test_a_longer_name_with_the_same_beginning_is_another() -> None:
    found = split(b"ABCDEFGHI\x01long\x02ABCDEFGH\x01short\x02")
    assert found.values_of("ABCDEFGH").to_pylist() == ["short"]
