"""Which header fields make a request."""

import pytest

from rockhopper.protocol.http2.errors import StreamError
from rockhopper.protocol.http2.hpack import Fields
from rockhopper.protocol.http2.semantics import (
    check_fields,
    check_trailers,
    parse_declared_size,
)

SOUND: Fields = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), ("te", "trailers")]


def test_a_sound_request_is_found_by_names() -> None:
    found = check_fields([*SOUND, ("x-a", "1"), ("x-a", "2")])
    assert (found[":path"], found["x-a"]) == ("/x", "2")


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(SOUND[1:], id="no method"),
        pytest.param([*SOUND[:2], (":path", "")], id="an empty path"),
        pytest.param([*SOUND, (":authority", "x")], id="a pseudo field behind others"),
        pytest.param([(":method", "GET"), *SOUND], id="two methods"),
        pytest.param([*SOUND, (":method", "GET")], id="another method behind others"),
        pytest.param([*SOUND, (":made-up", "x")], id="a pseudo field that nobody knows"),
        pytest.param([(":status", "200"), *SOUND], id="a field of answers"),
        pytest.param([*SOUND, ("Upper", "x")], id="upper case"),
        pytest.param([*SOUND, ("connection", "close")], id="a field of HTTP/1"),
        pytest.param([*SOUND[:3], ("te", "gzip")], id="te of something else"),
        pytest.param([*SOUND, ("", "x")], id="no name"),
    ],
)
def test_what_is_no_request_is_refused(fields: Fields) -> None:
    with pytest.raises(StreamError):
        check_fields(fields)


def test_trailers_have_no_pseudo_fields() -> None:
    check_trailers([("x-checksum", "1")])
    for field in ((":path", "/"), ("Upper", "x"), ("upgrade", "x")):
        with pytest.raises(StreamError):
            check_trailers([field])


@pytest.mark.parametrize(("text", "size"), [(None, None), ("0", 0), ("17", 17)])
def test_a_declared_size_is_a_number(text: str | None, size: int | None) -> None:
    assert parse_declared_size({} if text is None else {"content-length": text}) == size


@pytest.mark.parametrize("text", ["", "-1", "x", "9" * 19, "٣"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(StreamError):
        parse_declared_size({"content-length": text})
