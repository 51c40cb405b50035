"""Keys and tags without decoding: always what decoding finds, however odd the properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.protocol.properties import decode_properties
from rockhopper.protocol.store.expected import KeysAndTags, keys_and_tags


def decoded(text: str) -> KeysAndTags:
    found = decode_properties(text)
    return KeysAndTags(*(found.get(name, "") for name in ("UNIQ_KEY", "KEYS", "TAGS")))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", ("", "", "")),
        ("TAGS\x01a\x02", ("", "", "a")),
        ("TAGS\x01a", ("", "", "a")),
        ("KEYS\x01k1 k2\x02UNIQ_KEY\x01U\x02TAGS\x01t\x02", ("U", "k1 k2", "t")),
        ("TAGS\x01a\x02TAGS\x01b\x02", ("", "", "b")),
        ("MYTAGS\x01a\x02", ("", "", "")),
        ("x\x01TAGS\x02TAGS\x01a\x02", ("", "", "a")),
        ("TAGS\x01\x02", ("", "", "")),
    ],
)
def test_what_is_found(text: str, found: tuple[str, str, str]) -> None:
    assert keys_and_tags(text.encode()) == found
    assert decoded(text) == found


_WORDS = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "XTAGS", "\x01", "\x02", "v", "größe", "", "TAGS\x01", "\x02TAGS"]
)


@given(st.lists(_WORDS, max_size=12).map("".join))
def test_it_is_what_decoding_finds(text: str) -> None:
    assert keys_and_tags(text.encode()) == decoded(text)


def test_bytes_that_are_no_text_are_no_error() -> None:
    assert keys_and_tags(b"TAGS\x01\xff\x02") == ("", "", "\ufffd")
