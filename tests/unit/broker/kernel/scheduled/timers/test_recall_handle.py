"""Recall handles: RocketMQ's text, and everything that a client may bring instead."""

import base64

import pytest

from rockhopper.broker.kernel.scheduled.timers.recall_handle import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)


def test_handle_is_rocketmqs() -> None:
    """The text is base64 of what the specification says, made with coreutils' base64."""
    text = "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDAwMDAgN0YwMDAwMDE="
    handle = RecallHandle("orders", "broker-a", 1_700_000_000_000, "7F000001")
    assert encode_recall_handle(handle) == text
    assert decode_recall_handle(text) == handle
    assert decode_recall_handle(text.rstrip("=")) == handle


def test_a_handle_is_safe_in_a_url() -> None:
    handle = RecallHandle("größe???>>>", "b", 1, "k")
    text = encode_recall_handle(handle)
    assert "-" in text or "_" in text
    assert not set(text) & set("+/")
    assert decode_recall_handle(text) == handle


@pytest.mark.parametrize("text", ["", "v1 a b 1 c", "djEgY+", "a", "ZG/v", "gICAgA=="])
def test_what_is_no_base64_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"base64|does not contain"):
        decode_recall_handle(text)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("v2 orders broker-a 1 key", "does not contain v1 and four"),
        ("v1 orders broker-a 1", "does not contain v1 and four"),
        ("v1 orders broker-a 1 key more", "does not contain v1 and four"),
        ("v1 orders broker-a x key", "time is not a number"),
        ("v1 orders broker-a -1 key", "time is not a number"),
        ("v1 orders broker-a ² key", "time is not a number"),
        ("v1 orders broker-a 1000000000000000000 key", "time is not a number"),
    ],
)
def test_other_words_are_refused_with_the_reason(words: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode_recall_handle(base64.urlsafe_b64encode(words.encode()).decode())


def test_the_longest_time_that_is_a_number() -> None:
    text = base64.urlsafe_b64encode(b"v1 t b 999999999999999999 k").decode()
    assert decode_recall_handle(text).due_ms == 10**18 - 1
