"""The header of gRPC that says who asks, in the spellings of the clients."""

import pytest

from rockhopper.protocol.signing import parse_grpc_authorization


@pytest.mark.parametrize("signature", ["0aFF", "0AFF", "0aff"])
@pytest.mark.parametrize("scope", ["", "/", "/region/service"])
def test_grpc_header(signature: str, scope: str) -> None:
    text = (
        f"MQv2-HMAC-SHA1 Credential=alice{scope}, SignedHeaders=x-mq-date-time, "
        f"Signature={signature}"
    )
    assert parse_grpc_authorization(text) == ("alice", b"\x0a\xff")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Basic YTpi",
        "MQv2-HMAC-SHA1",
        "MQv2-HMAC-SHA1 Credential=alice",
        "MQv2-HMAC-SHA1 Credential=/r, Signature=0a",
        "MQv2-HMAC-SHA1 Credential=alice, Signature=xyz",
        "MQv2-HMAC-SHA1 " + "a" * 100_000,
    ],
)
def test_what_is_no_grpc_header(text: str) -> None:
    assert parse_grpc_authorization(text) is None
