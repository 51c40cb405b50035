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


class _Proved(NamedTuple):
    """The last proof of identity on a connection."""

    authorization: str
    signed: str
    principal: Principal


class ConnectionIdentity:
    """The peer of one connection, and the user that its calls have proved."""

    __slots__ = ("_failures", "_proof", "anonymous")

    def __init__(self, host: str) -> None:
        self.anonymous = Principal(host)
        """The principal of calls that prove nothing."""
        self._proof: _Proved | None = None
        self._failures = FailureAllowance()
        """The names that have failed to authenticate on the connection."""

    @property
    def user(self) -> str | None:
        """The user of the last call that was identified; None: no call has proved any."""
        return None if self._proof is None else self._proof.principal.user

    def identify(self, access: AccessRules, fields: dict[str, str]) -> Principal:
        """Return the principal that a call's header *fields* prove; anonymous without users.

        Raises NotAuthenticated.
        """
        if not isinstance(access, Guard) or access.is_open:
            self._proof = None
            return self.anonymous
        authorization, signed = fields.get(AUTHORIZATION, ""), fields.get(SIGNED, "")
        proof = self._proof
        if proof is None or (authorization, signed) != proof[:2]:
            principal = self._verify(access, authorization, signed)
            proof = self._proof = _Proved(authorization, signed, principal)
        return proof.principal

    def _verify(self, guard: Guard, authorization: str, signed: str) -> Principal:
        parsed = parse_grpc_authorization(authorization)
        if parsed is None:
            raise NotAuthenticated(
                "the call is not signed, and this broker requires users: give the client an access "
                "key and a secret key"
            )
        user, signature = parsed
        host = self.anonymous.host
        return guard.authenticator.verify(user, signed.encode(), signature, host, self._failures)
