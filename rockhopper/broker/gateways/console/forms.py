"""Forms that change something: where they come from, and the token that shows it.

Browsers send what they know of a user (HTTP Basic) with every request, whichever page it comes
from. So each of our forms carries a token that only our pages hold: an HMAC of the user's name by
a secret of this process. Browsers also say from where a form is sent; what they say has to fit.
"""

import hashlib
import hmac
import secrets
from collections.abc import Container, Mapping
from urllib.parse import parse_qsl

from rockhopper.protocol.addresses import split_address

FIELDS_MAX = 200


class Tokens:
    """The tokens of one process; those of the last one are worth nothing."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def make(self, user: str, what: str = "form") -> str:
        """The token of *user*, for forms or for another text that is to come back as it was."""
        said = f"{what}\0{user}".encode("utf-8", "surrogatepass")
        return hmac.new(self._secret, said, hashlib.sha256).hexdigest()

    def is_right(self, token: str, user: str, what: str = "form") -> bool:
        """Whether ``make`` has made *token*."""
        made = self.make(user, what).encode()
        return hmac.compare_digest(token.encode("utf-8", "replace"), made)


def is_from_here(headers: Mapping[str, str], names: Container[str]) -> bool:
    """Whether a form was sent from a page of this console, as far as the browser says.

    A reverse proxy may send another Host line than the one in the address bar, or leave the port
    out of it. So an origin is ours too if it has one of *names* (consoleHosts), or differs from the
    Host line by a port that is missing there.
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
    """Why a form is refused that was not sent from here, and what to set behind a proxy."""
    sentence = "This form was sent from a page elsewhere."
    name, _ = split_address(headers.get("origin", "").partition("://")[2])
    if not name or headers.get("sec-fetch-site", "same-origin") != "same-origin":
        return sentence
    return (
        f"{sentence} If {name[:200]} is the name by which a reverse proxy serves this console, add "
        "it to consoleHosts in the broker's settings."
    )


def fields(encoded: str) -> dict[str, str]:
    """The fields of a query or a form; of several with a name the last. Raises ValueError."""
    pairs = parse_qsl(encoded, keep_blank_values=True, errors="replace", max_num_fields=FIELDS_MAX)
    return dict(pairs)
