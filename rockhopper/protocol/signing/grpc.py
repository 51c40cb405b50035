"""Signatures of gRPC requests: HMAC-SHA1 over the text of x-mq-date-time only.

authorization: MQv2-HMAC-SHA1 Credential=key/region/service, SignedHeaders=x-mq-date-time,
Signature=hex
"""

import re

GRPC_ALGORITHM = "MQv2-HMAC-SHA1"
_GRPC_LENGTH_MAX = 1024
_GRPC_PARTS = re.compile(r"\s*(\w+)=([^,\s]*)\s*(?:,|$)")


def parse_grpc_authorization(text: str) -> tuple[str, bytes] | None:
    """Return the user and the signature in gRPC's ``authorization``; None if it has none."""
    algorithm, _, rest = text.strip().partition(" ")
    if algorithm != GRPC_ALGORITHM or len(rest) > _GRPC_LENGTH_MAX:
        return None
    parts = dict(_GRPC_PARTS.findall(rest))
    user = parts.get("Credential", "").partition("/")[0]
    try:
        signature = bytes.fromhex(parts.get("Signature", ""))
    except ValueError:
        return None
    return (user, signature) if user and signature else None
