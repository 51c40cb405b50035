"""Authentication of calls: the signature in their header fields, if the broker has users.

Only the text of x-mq-date-time is signed, in any time zone. So an eavesdropper can replay a
signature; it is secure only over TLS or within one host. Clients sign at most once a second, so the
last proof of a connection is cached.
"""

from typing import NamedTuple

from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.authentication import FailureAllowance
from rockhopper.broker.users.errors import NotAuthenticated
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.signing import parse_grpc_authorization

AUTHORIZATION, SIGNED = "authorization", "x-mq-date-time"


class Proved(NamedTuple):
    """The last proof of identity on a connection."""

    authorization: str
    signed: str
    principal: Principal


def identify(
    access: AccessRules,
    fields: dict[str, str],
    host: str,
    proved: Proved | None,
    failures: FailureAllowance | None = None,
) -> Proved | None:
    """Return the identity that header *fields* from *host* prove; None if there are no users.

    *failures* are those of the connection. Raises NotAuthenticated.
    """
    if not isinstance(access, Guard) or access.is_open:
        return None
    authorization, signed = fields.get(AUTHORIZATION, ""), fields.get(SIGNED, "")
    if proved is not None and (authorization, signed) == proved[:2]:
        return proved
    parsed = parse_grpc_authorization(authorization)
    if parsed is None:
        raise NotAuthenticated(
            "the call is not signed, and this broker requires users: give the client an access "
            "key and a secret key"
        )
    user, signature = parsed
    principal = access.authenticator.verify(user, signed.encode(), signature, host, failures)
    return Proved(authorization, signed, principal)
