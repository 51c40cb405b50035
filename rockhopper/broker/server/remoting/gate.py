"""The gate before the processors: authenticates the sender of a request, and checks permissions.

An unsigned request is anonymous, and rejected unless its code is allowlisted; requests that change
the cluster never are. A row of a processor table without a need is never served.

A console sends requests on behalf of its visitors, and names their hosts. If a request has the seal
of the console in this process, it is judged by the visitor's host, except for administration and
lists: the console itself decides what the visitor may change, and see in lists. A sender that names
a visitor without that seal may do only what it may do from both hosts.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rockhopper.broker.server.remoting.permissions import (
    ADMINISTRATION,
    ExaminedRequest,
    RequiredPermission,
    check_access,
)
from rockhopper.broker.server.remoting.server import Server
from rockhopper.broker.users.access import AccessRules, Action, ResourceKind
from rockhopper.broker.users.authentication import FailureAllowance
from rockhopper.broker.users.errors import NoPermission, NotAuthenticated
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import USERS, Principal
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.signing import (
    ACCESS_KEY,
    SIGNATURE,
    VISITOR,
    build_signed_content,
    is_sealed,
    parse_signature,
)

ENDING_USERS = "ending users"
USERS_MAX = 64
FAILURES = "failures"
"""The attribute with the names that failed to authenticate on a connection."""


class Signed(ExaminedRequest, Protocol):
    """The parts of a request that the gate needs."""

    principal: Principal

    @property
    def version(self) -> int:
        """The client's MQVersion ordinal."""

    @property
    def local_host(self) -> str:
        """The local address of the connection."""

    @property
    def attributes(self) -> dict[str, object]:
        """The attributes of the connection."""


def admit(
    access: AccessRules, request: Signed, permissions: tuple[RequiredPermission, ...]
) -> None:
    """Authenticate *request*, set its principal, and return if it may be served.

    Raises:
        NotAuthenticated: it is not signed, or not by the user it names.
        NoPermission, MalformedBodyError: as ``check_access``.
    """
    if not isinstance(access, Guard) or access.is_open:
        check_access(access, request, permissions)
        return
    if ACCESS_KEY not in request.ext:
        if request.code in access.unsigned_codes and not _changes_cluster(permissions):
            return
        raise NotAuthenticated(
            f"request code {request.code} is not signed, and this broker requires users: give "
            "the client an accessKey and a secretKey"
        )
    _identify(access, request)
    if not permissions:
        raise NoPermission(f"request code {request.code} declares no permission, so it is refused")
    if request.code not in access.free_codes or _changes_cluster(permissions):
        _check(access, request, permissions)


def admit_again(
    access: AccessRules, request: Signed, permissions: tuple[RequiredPermission, ...]
) -> None:
    """Return if *request*, which was admitted before, has permission for *permissions* now.

    For a request that has waited, and for the parts of one.

    Raises:
        NoPermission, MalformedBodyError: as ``check_access``.
    """
    if isinstance(access, Guard) and (
        ACCESS_KEY not in request.ext or request.code in access.free_codes
    ):
        return
    check_access(access, request, permissions)


def _check(access: Guard, request: Signed, permissions: tuple[RequiredPermission, ...]) -> None:
    visitor = request.ext.get(VISITOR)
    if visitor is None:
        check_access(access, request, permissions)
        return
    asker = request.principal
    is_here = is_loopback(asker.host) or asker.host == request.local_host
    is_ours = is_here and is_sealed(access.seal_secret, request.ext, request.body)
    of_visitor = [permission for permission in permissions if permission is not ADMINISTRATION]
    if is_ours:
        of_visitor = [
            permission for permission in of_visitor if Action.LIST not in permission.actions
        ]
        permissions = tuple(
            permission for permission in permissions if permission is ADMINISTRATION
        )
    check_access(access, request, permissions)
    request.principal = Principal(visitor, asker.user)
    check_access(access, request, of_visitor)
    if not is_ours:
        request.principal = asker


def _identify(access: Guard, request: Signed) -> None:
    ext = request.ext
    content = build_signed_content(ext, request.body, request.version)
    signature = parse_signature(ext.get(SIGNATURE, ""))
    host = request.principal.host
    failures = request.attributes.get(FAILURES)
    if not isinstance(failures, FailureAllowance):
        failures = request.attributes[FAILURES] = FailureAllowance()
    request.principal = access.authenticator.verify(
        ext[ACCESS_KEY], content, signature, host, failures
    )
    users = request.attributes.setdefault(USERS, set())
    if isinstance(users, set) and request.principal.user not in users:
        if len(users) >= USERS_MAX:
            raise NotAuthenticated(
                f"more than {USERS_MAX} users on one connection: open more connections"
            )
        users.add(request.principal.user)


@contextmanager
def answer_before_close(request: Signed) -> Iterator[None]:
    """Send the response to a request before its own connection is closed.

    For changes of users: a user's own connection accepts no more requests, and is closed a moment
    after the response.
    """
    attributes = request.attributes
    count = attributes.get(ENDING_USERS)
    attributes[ENDING_USERS] = (count if isinstance(count, int) else 0) + 1
    try:
        yield
    finally:
        left = attributes[ENDING_USERS]
        assert isinstance(left, int)
        if left > 1:
            attributes[ENDING_USERS] = left - 1
        else:
            del attributes[ENDING_USERS]


def close_connections_of(user: str, servers: Iterable[Server]) -> None:
    """Close every connection with requests of a user."""
    for server in servers:
        for connection in list(server.connections):
            users = connection.attributes.get(USERS)
            if isinstance(users, set) and user in users:
                reason = "its user was changed or deleted"
                if ENDING_USERS in connection.attributes:
                    connection.close_after_answer(reason)
                else:
                    connection.abort(reason)


def _changes_cluster(permissions: Iterable[RequiredPermission]) -> bool:
    return any(
        permission.kind == ResourceKind.CLUSTER and Action.UPDATE in permission.actions
        for permission in permissions
    )
