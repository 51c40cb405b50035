"""Protection of forms against cross-site requests: their origin, and a token.

Browsers send a user's HTTP Basic credentials with every request, whichever page it comes from. So
each form contains a token that only the console's pages have: an HMAC of the user's name with a
secret of this process. Browsers also send the origin of a form, which must match.
"""

import hashlib
import hmac
import secrets
from collections.abc import Container, Mapping
from urllib.parse import parse_qsl

from rockhopper.protocol.addresses import split_address

FIELDS_MAX = 200


class Tokens:
    """Creates and checks the tokens of one process; those of an earlier process are invalid."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def make(self, user: str, what: str = "form") -> str:
        """Return the token of *user* for forms, or for a text that must come back unchanged."""
        said = f"{what}\0{user}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()

    def is_right(self, token: str, user: str, what: str = "form") -> bool:
        """Return whether ``make`` created *token*."""
        made = self.make(user, what).encode()
        return hmac.compare_digest(token.encode("utf-8", "replace"), made)


def is_from_here(headers: Mapping[str, str], names: Container[str]) -> bool:
    """Return whether a form was sent from a page of this console, as far as the browser reports.

    A reverse proxy may replace the Host header, or omit its port. So an origin also matches if it
    has one of *names* (consoleHosts), or if it differs from the Host header only by a missing port.
    """
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    _, separator, place = origin.lower().partition("://")
    host_line = headers.get("host", "").lower()
    name, _ = split_address(place)
    if not separator:
        return False
    return place == host_line or name in names or (split_address(host_line) == (name, None))


def from_elsewhere(headers: Mapping[str, str]) -> str:
    """Return why a form from another origin is refused, and the setting needed behind a proxy."""
    sentence = "This form was sent from another site."
    name, _ = split_address(headers.get("origin", "").partition("://")[2])
    if not name or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return sentence
    return (
        f"{sentence} If {name[:200]} is the name by which a reverse proxy serves this console, add "
        "it to consoleHosts in the broker's settings."
    )


def fields(encoded: str) -> dict[str, str]:
    """Parse a query or a form; of fields with the same name the last counts. Raises ValueError."""
    pairs = parse_qsl(encoded, keep_blank_values=True, errors="replace", max_num_fields=FIELDS_MAX)
    return dict(pairs)
