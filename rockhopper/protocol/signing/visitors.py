"""Visitors of a console: request fields with the address of the user that a console acts for.

The fields are RhVisitor and RhVisitorSeal in extFields. Any client may name a visitor, which can
only restrict the rights of a request. The seal proves that the console of this process, or of its
parent, named the visitor.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rockhopper.protocol.signing.remoting import SIGNATURE, Credentials

VISITOR = "RhVisitor"
VISITOR_SEAL = "RhVisitorSeal"


@dataclass(frozen=True, slots=True)
class VisitorCredentials(Credentials):
    """The credentials of a user who visits a console."""

    host: str
    """The visitor's address."""
    seal_secret: bytes = field(repr=False)

    def more_fields(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return the additional fields of a request, which are signed as well."""
        named = {**fields, VISITOR: self.host}
        return {VISITOR: self.host, VISITOR_SEAL: _seal(self.seal_secret, named, body)}


def is_sealed(secret: bytes, fields: Mapping[str, str], body: bytes) -> bool:
    """Whether a holder of *secret* named the visitor of exactly this request."""
    seal = fields.get(VISITOR_SEAL, "").encode("utf-8", "replace")
    return hmac.compare_digest(seal, _seal(secret, fields, body).encode())


def _seal(secret: bytes, fields: Mapping[str, str], body: bytes) -> str:
    kept = sorted(each for each in fields.items() if each[0] not in (SIGNATURE, VISITOR_SEAL))
    content = json.dumps(kept).encode() + b"\0" + body
    return hmac.new(secret, content, hashlib.sha256).hexdigest()
