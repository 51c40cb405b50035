"""For whom a console asks: the address of its visitor, in fields of a request.

extFields RhVisitor and RhVisitorSeal. Anybody may name a visitor, which can only take rights from
a request; the seal shows that the console of this very process, or of its parent, has named him.
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
    """Those of a user who visits a console."""

    host: str
    """Where from."""
    seal_secret: bytes = field(repr=False)

    def more_fields(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """What goes along with a request of these fields, and is signed as well."""
        named = {**fields, VISITOR: self.host}
        return {VISITOR: self.host, VISITOR_SEAL: _seal(self.seal_secret, named, body)}


def is_sealed(secret: bytes, fields: Mapping[str, str], body: bytes) -> bool:
    """Whether who holds *secret* has named the visitor of this very request."""
    seal = fields.get(VISITOR_SEAL, "").encode("utf-8", "replace")
    return hmac.compare_digest(seal, _seal(secret, fields, body).encode())


def _seal(secret: bytes, fields: Mapping[str, str], body: bytes) -> str:
    kept = sorted(each for each in fields.items() if each[0] not in (SIGNATURE, VISITOR_SEAL))
    content = json.dumps(kept).encode() + b"\0" + body
    return hmac.new(secret, content, hashlib.sha256).hexdigest()
