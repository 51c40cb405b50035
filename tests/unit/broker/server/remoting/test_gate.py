"""The gate: signed requests are served in their user's name, all others are nobody's.

A signature covers the fields and the body, and neither code nor time, that of gRPC a date alone.
What a replay is good for:

- with another code, what the user may do by that one:
  test_a_replay_with_another_code_is_what_its_user_may_do_by_that_code
- once the user has changed or is gone, nothing:
  test_a_replay_is_refused_once_its_user_has_changed, here and in gateways/grpc/test_identity
- in another user's name, with other fields or another body, nothing:
  test_what_was_altered_after_signing_is_refused, test_another_body_is_refused
- for what follows on its connection, nothing:
  test_each_request_is_signed_whoever_signed_others_on_its_connection, and in
  gateways/grpc/test_identity test_what_one_proved_is_not_anothers
- past the gate, where compiled code checks signatures, the same: hot/test_signed_sends, and
  hot/test_hot_pass, test_rules_that_compiled_code_does_not_know_are_asked_for_each_request
"""

from dataclasses import dataclass, field

import pytest

from rockhopper.broker.server.remoting.gate import USERS_MAX, admit
from rockhopper.broker.server.remoting.permissions import ADMINISTRATION, on_cluster, on_topic
from rockhopper.broker.users.access import AccessRules, Action
from rockhopper.broker.users.accounts import Pattern, Rule, User, parse_actions
from rockhopper.broker.users.errors import NoPermission, NotAuthenticated
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import USERS, Principal
from rockhopper.protocol.signing import Credentials, VisitorCredentials, sign_fields

SECRET = "a secret of root"
SEE, CHANGE, SEND = on_cluster(Action.GET), on_cluster(Action.UPDATE), on_topic(Action.PUB)

HERE = Principal("10.0.0.7")


@dataclass
class Asking:
    """A request."""

    ext: dict[str, str]
    code: int = 10
    body: bytes = b"body"
    version: int = 479
    principal: Principal = HERE
    local_host: str = "10.0.0.8"
    attributes: dict[str, object] = field(default_factory=dict)


def guard() -> Guard:
    made = Guard(remote_admin=False, authenticates=True, unsigned_codes=[10], free_codes=[11])
    users = {f"root{number}": User(f"root{number}", SECRET, True) for number in range(99)}
    made.use(users | {"root": User("root", SECRET, True), "al": User("al", SECRET)}, {})
    return made


def signed(name: str = "root", body: bytes = b"body", code: int = 12) -> Asking:
    return Asking(sign_fields(Credentials(name, SECRET), {"topic": "orders"}, body, 479), code)


def test_a_signed_request_is_served_in_its_users_name() -> None:
    request = signed()
    admit(guard(), request, (SEND,))
    assert request.principal == Principal("10.0.0.7", "root")
    assert request.attributes[USERS] == {"root"}


@pytest.mark.parametrize("field_name", ["topic", "AccessKey", "Signature", "more"])
def test_what_was_altered_after_signing_is_refused(field_name: str) -> None:
    request = signed()
    request.ext[field_name] = "al"
    with pytest.raises(NotAuthenticated):
        admit(guard(), request, (SEND,))


def test_another_body_is_refused() -> None:
    with pytest.raises(NotAuthenticated):
        admit(guard(), signed(body=b"another"), (SEND,))


def test_unsigned_requests_are_served_where_listed_but_never_change_the_cluster() -> None:
    admit(guard(), Asking({}), (SEND,))
    for request, permission in ((Asking({}), CHANGE), (Asking({}, code=12), SEE)):
        with pytest.raises(NotAuthenticated, match="not signed"):
            admit(guard(), request, (permission,))


def test_a_listed_code_does_not_excuse_a_wrong_signature() -> None:
    with pytest.raises(NotAuthenticated):
        admit(guard(), Asking({"AccessKey": "root"}), (SEND,))


def test_a_row_without_needs_serves_nobody() -> None:
    with pytest.raises(NoPermission, match="declares no permission"):
        admit(guard(), signed(), ())


def test_one_connection_is_not_everybodys() -> None:
    access, attributes = guard(), dict[str, object]()
    for number in range(USERS_MAX):
        request = signed(f"root{number}")
        request.attributes = attributes
        admit(access, request, (SEND,))
    request = signed("root")
    request.attributes = attributes
    with pytest.raises(NotAuthenticated, match="open more connections"):
        admit(access, request, (SEND,))


def test_without_users_nobody_needs_a_signature() -> None:
    admit(AccessRules(remote_admin=False), Asking({"topic": "orders"}), (SEND,))
    admit(Guard(remote_admin=False), Asking({"topic": "orders"}), (SEND,))


def test_a_replay_with_another_code_is_what_its_user_may_do_by_that_code() -> None:
    recorded = signed("al", code=12)
    replayed = Asking(dict(recorded.ext), code=13)
    rule = Rule(Pattern.parse("Topic:orders"), parse_actions(["Get"]), (), is_allowed=True)
    made = Guard(remote_admin=False, authenticates=True, authorizes=True)
    made.use({"al": User("al", SECRET)}, {"al": [rule]})
    admit(made, recorded, (on_topic(Action.GET),))
    for permission in (on_topic(Action.DELETE), CHANGE):
        with pytest.raises(NoPermission):
            admit(made, replayed, (permission,))


@pytest.mark.parametrize(
    "changed", [User("al", "another secret"), User("al", SECRET, is_enabled=False), None]
)
def test_a_replay_is_refused_once_its_user_has_changed(changed: User | None) -> None:
    made, users = Guard(remote_admin=False, authenticates=True), {"al": User("al", SECRET)}
    made.use(users, {})
    recorded = signed("al")
    admit(made, Asking(dict(recorded.ext)), (SEND,))
    if changed is None:
        del users["al"]
    else:
        users["al"] = changed
    with pytest.raises(NotAuthenticated):
        admit(made, Asking(dict(recorded.ext)), (SEND,))


def test_each_request_is_signed_whoever_signed_others_on_its_connection() -> None:
    made, first = guard(), signed()
    admit(made, first, (SEND,))
    forged = signed()
    forged.ext["Signature"] = "AAAA"
    for follower in (Asking({"topic": "orders"}, code=12), forged):
        follower.attributes = first.attributes
        with pytest.raises(NotAuthenticated):
            admit(made, follower, (SEND,))


FROM_HERE, FROM_AFAR = "127.0.0.1", "192.0.2.7"


def ruled(source: str) -> Guard:
    """A guard that lets al look at a topic from one address."""
    rule = Rule(Pattern.parse("Topic:orders"), parse_actions(["Get"]), (source,), is_allowed=True)
    made = Guard(remote_admin=False, authenticates=True, authorizes=True)
    made.use({"al": User("al", SECRET)}, {"al": [rule]})
    return made


def visiting(access: Guard, visitor: str, secret: bytes = b"", asker: str = FROM_HERE) -> Asking:
    his = VisitorCredentials("al", SECRET, visitor, secret or access.seal_secret)
    fields = sign_fields(his, {"topic": "orders"}, b"body", 479)
    return Asking(fields, 12, principal=Principal(asker))


def test_a_consoles_request_is_judged_by_where_its_visitor_is() -> None:
    look = (ADMINISTRATION, on_topic(Action.GET))
    request = visiting(access := ruled(FROM_AFAR), FROM_AFAR)
    admit(access, request, look)
    assert request.principal == Principal(FROM_AFAR, "al")
    access = ruled(FROM_HERE)
    with pytest.raises(NoPermission, match=r"al at 192.0.2.7 is not allowed to Get Topic:orders"):
        admit(access, visiting(access, FROM_AFAR), look)
    asked_at_own_address = visiting(access := ruled(FROM_AFAR), FROM_AFAR, asker="10.0.0.8")
    admit(access, asked_at_own_address, look)


@pytest.mark.parametrize("asker", [FROM_HERE, "10.0.0.7"])
def test_a_visitor_without_the_seal_only_takes_rights(asker: str) -> None:
    look = (on_topic(Action.GET),)
    other = b"of another process"
    for source, visitor in ((FROM_AFAR, FROM_AFAR), (asker, FROM_AFAR)):
        access = ruled(source)
        with pytest.raises(NoPermission):
            admit(access, visiting(access, visitor, other, asker), look)
    access = ruled(asker)
    request = visiting(access, asker, other, asker)
    admit(access, request, look)
    assert request.principal == Principal(asker, "al")


def test_a_seal_is_worth_nothing_on_another_host() -> None:
    access = ruled(FROM_AFAR)
    with pytest.raises(NoPermission, match=r"al at 10.0.0.7 is not allowed"):
        admit(access, visiting(access, FROM_AFAR, asker="10.0.0.7"), (on_topic(Action.GET),))
