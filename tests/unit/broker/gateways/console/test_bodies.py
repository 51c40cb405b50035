"""Bodies: whatever a producer sends, in bounds and as what it is."""

import zlib

import pytest

from rockhopper.broker.gateways.console import bodies
from rockhopper.broker.gateways.console.bodies import format_body, hex_dump, preview
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED, SYS_FLAG_COMPRESSED_ZLIB


def message(body: bytes, sys_flag: int = 0) -> StoredMessage:
    return StoredMessage("t", 0, 0, 0, body, sys_flag=sys_flag)


def zipped(body: bytes) -> StoredMessage:
    return message(zlib.compress(body), SYS_FLAG_COMPRESSED_ZLIB | SYS_FLAG_COMPRESSED)


def test_json_is_set_out_and_not_changed() -> None:
    body = '{"b":1e400,"a":[1,{"ž":12345678901234567890}],"b":2.50}'.encode()
    found = format_body(message(body))
    assert found.form == "json"
    assert found.text.replace("\n", "").replace(" ", "") == body.decode()
    assert found.text.startswith('{\n  "b": 1e400')


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"plain", "text"),
        (b"", "text"),
        (b"123", "text"),
        (b"{broken", "text"),
        (b"\xff\xfe\x00", "hex"),
        (b"a\0b", "hex"),
        ("ž".encode() * 70_000, "text"),
        (b"[" * 100_000 + b"]" * 100_000, "text"),
        (b'["\xff"]', "hex"),
    ],
)
def test_a_body_is_shown_as_what_it_is(body: bytes, form: str) -> None:
    assert format_body(message(body)).form == form


def test_any_form_can_be_asked_for() -> None:
    assert format_body(message(b"\xff\xfeA"), "text").text == "\\xff\\xfeA"
    found = format_body(message(b"no json"), "json")
    assert found.form == "text"
    assert found.problem == "This is not JSON, or too large to be formatted."
    assert format_body(message(b"{}"), "hex").text.startswith("00000000  7b 7d")


def test_what_is_large_is_cut_and_says_so() -> None:
    found = format_body(message(b"x" * 1_000_000))
    assert (found.is_cut, found.size_bytes, len(found.text)) == (True, 1_000_000, 65_536)
    assert len(format_body(message(bytes(1_000_000))).text) < 100_000


def test_json_that_would_grow_by_being_set_out_is_text() -> None:
    deep = b"[" * 400 + b"1," * 60_000 + b"1" + b"]" * 400
    assert format_body(message(deep)).form == "text"
    in_a_string = b'["' + b"[,{" * 60_000 + b'"]'
    assert format_body(message(in_a_string)).form == "json"


def test_compressed_bodies_are_opened_within_bounds() -> None:
    found = format_body(zipped(b'{"a": 1}'))
    assert (found.form, found.compression, found.size_bytes) == ("json", "zlib", 8)
    bomb = zipped(bytes(bodies.DECOMPRESSED_SIZE_BYTES_MAX + 1))
    found = format_body(bomb)
    assert "larger than" in found.problem
    assert (found.form, found.size_bytes) == ("hex", len(bomb.body))
    broken = message(b"no zlib", SYS_FLAG_COMPRESSED_ZLIB | SYS_FLAG_COMPRESSED)
    assert "not a zlib stream" in format_body(broken).problem
    unknown = message(b"x", SYS_FLAG_COMPRESSED | 0x700)
    assert "unknown compression" in format_body(unknown).problem


def test_previews_are_one_short_line() -> None:
    assert preview(message(b"a\n b\t\tc")) == "a b c"
    assert preview(message(b"")) == ""
    assert preview(message('"Žofín"}'.encode())) == '"Žofín"}'
    long = preview(message("ž".encode() * 10_000))
    assert long.endswith("ž …")
    assert len(long) == bodies.PREVIEW_CHARACTERS + 2
    assert preview(message(b"\xff\xfe")) == "2 bytes: ff fe"
    assert preview(message(bytes(100))).startswith("100 bytes: 00 00")
    assert preview(zipped(b"A" * 1_000_000)).startswith("AAA")
    assert preview(zipped("中文".encode() * 100_000)).startswith("中文")
    assert preview(message("中文".encode())) == "中文"
    bomb = zipped(bytes(1_000_000))
    assert preview(bomb).startswith(f"zlib, {len(bomb.body):,} bytes: 00 00")
    assert preview(zipped(b"")) == ""
    assert preview(message(b"no zlib", SYS_FLAG_COMPRESSED)) == "zlib, 7 bytes"


def test_a_hex_dump_has_sixteen_bytes_a_line() -> None:
    first, second = hex_dump(bytes(range(65, 82))).split("\n")
    assert first == ("00000000  41 42 43 44 45 46 47 48  49 4a 4b 4c 4d 4e 4f 50  ABCDEFGHIJKLMNOP")
    assert second.split() == ["00000010", "51", "Q"]
