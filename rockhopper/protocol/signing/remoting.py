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
"""The minimum for a new user; a shorter secret from RocketMQ's tools is accepted with a warning."""
# The field that clients up to 4.9.3 add after signing, and the MQVersion ordinal of 4.9.3.
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


def build_signed_content(fields: Mapping[str, str], body: bytes, version: int) -> bytes:
    """Return the content to sign for a remoting request with these header fields."""
    adds_unsigned = version <= _VERSION_ADDING_UNSIGNED_MAX and _UNIQUE_KEY_QUERY in fields
    values = [
        fields[name]
        for name in sorted(fields)
        if name != SIGNATURE and not (adds_unsigned and name == _UNIQUE_KEY_QUERY)
    ]
    return "".join(values).encode("utf-8", "surrogatepass") + body


def sign(secret: str, content: bytes) -> bytes:
    """Return the signature of *content*."""
    return hmac.digest(secret.encode(), content, "sha1")


def sign_fields(
    credentials: Credentials, fields: Mapping[str, str], body: bytes, version: int
) -> dict[str, str]:
    """Return the *fields* of a remoting request with the user and the signature added."""
    signed = {name: value for name, value in fields.items() if name != SIGNATURE}
    signed[ACCESS_KEY] = credentials.access_key
    signed |= credentials.more_fields(signed, body)
    content = build_signed_content(signed, body, version)
    signed[SIGNATURE] = base64.b64encode(sign(credentials.secret, content)).decode()
    return signed


def parse_signature(text: str) -> bytes:
    """Return the bytes of a remoting signature; for invalid Base64 none, which match no secret."""
    try:
        return binascii.a2b_base64(text)
    except ValueError:
        return b""
