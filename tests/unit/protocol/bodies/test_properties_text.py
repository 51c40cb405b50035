r"""Settings as text: what java.util.Properties reads, what RocketMQ writes."""

import pytest

from rockhopper.protocol.bodies import decode_properties_text, encode_properties_text
from rockhopper.protocol.errors import MalformedBodyError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb=2\n", {"a": "1", "b": "2"}),
        ("a = 1 \n  b:2", {"a": "1 ", "b": "2"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("# comment\n! comment\n\n  # too\na=1#no", {"a": "1#no"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\\\n   2\nb=3", {"a": "12", "b": "3"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\=b=c\\tq\\n\\r\\f\\z", {"a=b": "c\tq\n\r\fz"}),
        ("a=\\u6807\\u7b7e", {"a": "标签"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
        ("a=标签", {"a": "标签"}),
        ("\ufeffa=1", {"a": "1"}),
    ],
)
def test_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert decode_properties_text(text) == expected
    assert decode_properties_text(text.encode()) == expected


def test_bytes_that_are_not_utf8_are_latin_1() -> None:
    assert decode_properties_text(b"a=\xe9") == {"a": "é"}


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12x4", "a=\\u"])
def test_escape_that_is_cut_off_is_refused(text: str) -> None:
    with pytest.raises(MalformedBodyError, match="4 hex digits"):
        decode_properties_text(text)


def test_writes_one_line_each_without_escapes() -> None:
    settings = {"brokerName": "broker-a", "flag": True, "port": 10911, "none": None, "t": "标"}
    assert encode_properties_text(settings) == (
        "brokerName=broker-a\nflag=true\nport=10911\nt=标\n".encode()
    )
