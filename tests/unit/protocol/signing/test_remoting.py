"""Signatures, against what RocketMQ's clients compute, and what no client sends."""

import base64
import hashlib
import hmac

import pytest

from rockhopper.protocol.signing import (
    Credentials,
    build_signed_content,
    parse_signature,
    sign,
    sign_fields,
)

ALICE = Credentials("alice", "a secret of alice")
FIELDS = {"topic": "orders", "AccessKey": "alice", "Zone": "ü", "a": "1"}


def test_content_is_the_values_in_the_order_of_their_names_and_the_body() -> None:
    assert (
        build_signed_content({**FIELDS, "Signature": "x"}, b"body", 479)
        == "aliceü1ordersbody".encode()
    )


@pytest.mark.parametrize(("version", "is_signed"), [(399, False), (401, True)])
def test_what_old_clients_add_after_signing_is_left_out(version: int, is_signed: bool) -> None:
    content = build_signed_content({"_UNIQUE_KEY_QUERY": "true", "a": "1"}, b"", version)
    assert content == (b"true1" if is_signed else b"1")


def test_a_signed_request_says_who_sends_it_and_proves_it() -> None:
    fields = sign_fields(ALICE, {"topic": "orders"}, b"body", 479)
    expected = hmac.new(ALICE.secret.encode(), b"aliceordersbody", hashlib.sha1).digest()
    assert fields["AccessKey"] == "alice"
    assert (
        base64.b64decode(fields["Signature"]) == expected == sign(ALICE.secret, b"aliceordersbody")
    )
    assert parse_signature(fields["Signature"]) == expected


def test_an_earlier_signature_is_replaced() -> None:
    once = sign_fields(ALICE, {"topic": "orders"}, b"", 479)
    assert sign_fields(ALICE, once, b"", 479) == once


@pytest.mark.parametrize("text", ["a", "ü", "====="])
def test_what_is_no_base64_is_nobodys_signature(text: str) -> None:
    assert len(parse_signature(text)) != 20


def test_nothing_shows_a_secret() -> None:
    assert ALICE.secret not in f"{ALICE} {ALICE!r} {[ALICE]}"
