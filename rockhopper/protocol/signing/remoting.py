"""Signatures of remoting requests: HMAC-SHA1 over the values of the fields and the body.

extFields AccessKey, SecurityToken (may be missing) and Signature (Base64). Neither the request code
nor a time is signed.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECRET_LENGTH_MIN = 12
"""Of a new user's; shorter ones of RocketMQ's own tools are taken with a warning."""
# What the clients up to 4.9.3 add after they have signed, and the MQVersion ordinal of 4.9.3.
_UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
_VERSION_ADDING_UNSIGNED_MAX = 399


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user's name and secret. str() and repr() hide the secret."""

    access_key: str
    secret: str = field(repr=False)

    def more_fields(self, _fields: Mapping[str, str], _body: bytes) -> dict[str, str]:
        """Additional fields to send, and sign, with a request of these fields."""
        return {}


def signed_content(fields: Mapping[str, str], body: bytes, version: int) -> bytes:
    """What the signature of a remoting request with these header fields is of."""
    adds_unsigned = version <= _VERSION_ADDING_UNSIGNED_MAX and _UNIQUE_KEY_QUERY in fields
    values = [
        fields[name]
        for name in sorted(fields)
        if name != SIGNATURE and not (adds_unsigned and name == _UNIQUE_KEY_QUERY)
    ]
    return "".join(values).encode("utf-8", "surrogatepass") + body


def sign(secret: str, content: bytes) -> bytes:
    """The signature of *content*, as bytes."""
    return hmac.digest(secret.encode(), content, "sha1")


def sign_fields(
    credentials: Credentials, fields: Mapping[str, str], body: bytes, version: int
) -> dict[str, str]:
    """*fields* of a remoting request with those that say who sends it."""
    signed = {name: value for name, value in fields.items() if name != SIGNATURE}
    signed[ACCESS_KEY] = credentials.access_key
    signed |= credentials.more_fields(signed, body)
    content = signed_content(signed, body, version)
    signed[SIGNATURE] = base64.b64encode(sign(credentials.secret, content)).decode()
    return signed


def parse_signature(text: str) -> bytes:
    """The bytes of a remoting signature; none for what is no Base64, which no secret gives."""
    try:
        return binascii.a2b_base64(text)
    except ValueError:
        return b""
