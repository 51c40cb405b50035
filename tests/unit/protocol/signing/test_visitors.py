"""Visitors: who is named, and by whom."""

from rockhopper.protocol.signing import (
    VISITOR,
    Credentials,
    VisitorCredentials,
    is_sealed,
    sign_fields,
)
from rockhopper.protocol.signing.visitors import VISITOR_SEAL

SECRET = b"of this process"
HIS = VisitorCredentials("al", "al's secret", "192.0.2.1", SECRET)


def test_a_seal_is_of_one_request() -> None:
    fields = sign_fields(HIS, {"topic": "ab", "group": "c"}, b"body", 479)
    assert fields[VISITOR] == "192.0.2.1"
    assert is_sealed(SECRET, fields, b"body")
    assert not is_sealed(b"of another", fields, b"body")
    assert not is_sealed(SECRET, fields, b"another body")
    assert not is_sealed(SECRET, {**fields, VISITOR: "192.0.2.2"}, b"body")
    # What is signed is one text; what is sealed keeps the fields apart.
    moved = {**fields, "group": "ca", "topic": "b"}
    assert not is_sealed(SECRET, moved, b"body")
    assert not is_sealed(SECRET, {**fields, VISITOR_SEAL: "\udc00"}, b"body")


def test_others_name_no_visitor_and_nobody_shows_secrets() -> None:
    assert VISITOR not in sign_fields(Credentials("al", "al's secret"), {}, b"", 479)
    assert "secret" not in repr(HIS)
    assert repr(SECRET) not in repr(HIS)
