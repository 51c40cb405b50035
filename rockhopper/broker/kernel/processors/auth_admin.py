"""Users and rules for administrators: codes 3001 to 3010, used by mqadmin's createUser and others.

    3001, 3002, 3003    create, update, delete a user    username; body UserInfo
    3004, 3005          one user, or all                 username; filter
    3006, 3007          add or replace rules             subject; body AclInfo; ours: adds=true adds
                                                         to the actions of a rule
    3008                delete rules                     subject, policyType, resource
    3009, 3010          the rules of one, or of all      subject; subjectFilter, resourceFilter
    70016, ours         the decision and its reason      username, action, resource, host

Only Super users may create, change and delete a Super user. Only they may see secrets, on this host
or over TLS. The last Super user cannot be removed while authentication is on.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from rockhopper.broker.kernel.tables.accounts import (
    AclTable,
    UserTable,
    policies_to_json,
    rules_of_policies,
    user_to_json,
)
from rockhopper.broker.server.remoting.dispatcher import (
    Request,
    RequestError,
    Response,
    Row,
    administers,
)
from rockhopper.broker.server.remoting.gate import answer_before_close
from rockhopper.broker.server.remoting.json_bodies import ADMIN_BODY_SIZE_BYTES_MAX, check_size
from rockhopper.broker.server.remoting.permissions import CHANGE_CLUSTER, SEE_CLUSTER
from rockhopper.broker.settings.auth_config import AuthConfig
from rockhopper.broker.users.access import Resource
from rockhopper.broker.users.accounts import (
    Pattern,
    Rule,
    User,
    check_name,
    decide,
    parse_actions,
    with_added,
)
from rockhopper.broker.users.errors import InvalidParameter, NoPermission
from rockhopper.broker.users.guard import NOTES
from rockhopper.protocol import fastjson
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.signing import SECRET_LENGTH_MIN

log = structlog.get_logger("broker.access")

SUBJECT = "User:"
ADDS = "adds"


@dataclass(eq=False, repr=False)
class AuthAdminProcessors:
    """Serves the administration of users and rules."""

    _config: AuthConfig
    _users: UserTable
    _acls: AclTable

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.AUTH_CREATE_USER: administers(self.create_user, CHANGE_CLUSTER),
            Code.AUTH_UPDATE_USER: administers(self.update_user, CHANGE_CLUSTER),
            Code.AUTH_DELETE_USER: administers(self.delete_user, CHANGE_CLUSTER),
            Code.AUTH_GET_USER: administers(self.get_user, SEE_CLUSTER, promises_state=False),
            Code.AUTH_LIST_USER: administers(self.list_users, SEE_CLUSTER, promises_state=False),
            Code.AUTH_CREATE_ACL: administers(self.create_acl, CHANGE_CLUSTER),
            Code.AUTH_UPDATE_ACL: administers(self.update_acl, CHANGE_CLUSTER),
            Code.AUTH_DELETE_ACL: administers(self.delete_acl, CHANGE_CLUSTER),
            Code.AUTH_GET_ACL: administers(self.get_acl, SEE_CLUSTER, promises_state=False),
            Code.AUTH_LIST_ACL: administers(self.list_acls, SEE_CLUSTER, promises_state=False),
            Code.EXPLAIN_ACCESS: administers(self.explain, SEE_CLUSTER, promises_state=False),
        }

    async def create_user(self, request: Request) -> Response:
        """3001: create a user."""
        info, name = _user_info(request)
        if name in self._users.users:
            raise NoPermission(f"the user {name} exists already: update it instead")
        secret = str(info.get("password") or "")
        if not secret:
            raise InvalidParameter("a user needs a password")
        user = User(name, secret, _is_super(info, before=False), _is_enabled(info, before=True))
        return await self._put(request, user)

    async def update_user(self, request: Request) -> Response:
        """3002: change a user's password, type or status; omitted fields stay."""
        info, name = _user_info(request)
        user = self._user(name)
        self._check_super(request, user)
        changed = dataclasses.replace(
            user,
            secret=str(info.get("password") or user.secret),
            is_super=_is_super(info, before=user.is_super),
            is_enabled=_is_enabled(info, before=user.is_enabled),
        )
        if not (changed.is_super and changed.is_enabled):
            self._check_not_last(user)
        return await self._put(request, changed)

    async def delete_user(self, request: Request) -> Response:
        """3003: delete a user with their rules."""
        name = _username(request)
        user = self._users.users.get(name)
        if user is not None:
            self._check_super(request, user)
            self._check_not_last(user)
            with answer_before_close(request):
                self._acls.replace_rules(name, ())
                self._users.delete(name)
                log.info("user deleted", user=name, by=request.principal.user or "nobody")
                await self._save()
        return Response()

    def get_user(self, request: Request) -> Response:
        """3004: return one user; empty if there is none, as in RocketMQ."""
        user = self._users.users.get(_username(request))
        return Response() if user is None else _answer(self._build_shown(request, user))

    def list_users(self, request: Request) -> Response:
        """3005: return the users whose names contain the filter."""
        wanted = request.ext.get("filter", "")
        users = [user for name, user in self._users.users.items() if wanted in name]
        return _answer([self._build_shown(request, user) for user in users])

    async def create_acl(self, request: Request) -> Response:
        """3006: add rules; a new rule replaces an existing one for the same resource."""
        return await self._put_rules(request)

    async def update_acl(self, request: Request) -> Response:
        """3007: the same, for a user who has rules."""
        return await self._put_rules(request)

    async def delete_acl(self, request: Request) -> Response:
        """3008: delete a user's rules, or those of one policy, or for one resource."""
        name = _subject(request)
        self._check_super(request, self._user(name))
        kind, resource = request.ext.get("policyType", ""), request.ext.get("resource", "")
        kept = [
            rule
            for rule in self._acls.rules.get(name, ())
            if (kind and rule.policy.value.lower() != kind.lower())
            or (resource and rule.pattern != Pattern.parse(resource, self._acls.kinds))
        ]
        self._acls.replace_rules(name, kept)
        log.info("rules deleted", user=name, by=request.principal.user or "nobody")
        await self._save()
        return Response()

    def get_acl(self, request: Request) -> Response:
        """3009: return the rules of one user; empty if there are none."""
        name = _subject(request)
        rules = self._acls.rules.get(name)
        return Response() if rules is None else _answer(_acl(name, rules))

    def list_acls(self, request: Request) -> Response:
        """3010: return the rules whose subject and resource contain the two filters."""
        wanted, resource = (
            request.ext.get("subjectFilter", ""),
            request.ext.get("resourceFilter", ""),
        )
        found = []
        for name, rules in self._acls.rules.items():
            about = [rule for rule in rules if resource in str(rule.pattern)]
            if wanted in SUBJECT + name and about:
                found.append(_acl(name, about))
        return _answer(found)

    def explain(self, request: Request) -> Response:
        """70016, ours: return the decision for a user, an action, a resource and an address."""
        ext = request.ext
        name = _username(request)
        actions = parse_actions([ext.get("action", "")])
        pattern = Pattern.parse(ext.get("resource", ""), self._acls.kinds)
        if pattern.kind is None or pattern.is_prefix:
            raise InvalidParameter("name one resource: Topic:name, Group:name, Cluster:name")
        user = self._users.users.get(name)
        if user is None or not user.is_enabled:
            is_allowed, why = (
                False,
                "the user is unknown" if user is None else "the user is disabled",
            )
        elif user.is_super:
            is_allowed, why = True, "the user is a Super user"
        elif (pattern.kind, pattern.name) == NOTES:
            is_allowed, why = False, "only Super users may read a replica set's records"
        elif not self._config.authorization_enabled:
            is_allowed, why = True, "authorizationEnabled=false: every user may do everything"
        else:
            resource = Resource(pattern.kind, pattern.name)
            rules = self._acls.rules.get(name, ())
            rule = decide(rules, actions, resource, ext.get("host", ""))
            is_allowed = rule is not None and rule.is_allowed
            why = "no rule matches" if rule is None else str(rule)
        return _answer({"isAllowed": is_allowed, "why": why})

    async def _put(self, request: Request, user: User) -> Response:
        self._check_super(request, user)
        if len(user.secret) < SECRET_LENGTH_MIN:
            log.warning(
                f"a secret is short: use at least {SECRET_LENGTH_MIN} characters", user=user.name
            )
        with answer_before_close(request):
            self._users.store_user(user)
            log.info("user changed", user=user.name, by=request.principal.user or "nobody")
            await self._save()
        return Response()

    async def _put_rules(self, request: Request) -> Response:
        name, info = _subject(request), _object(request)
        _check_repeated(info, "subject", SUBJECT + name)
        self._check_super(request, self._user(name))
        policies = info.get("policies")
        if not isinstance(policies, list) or not policies:
            raise InvalidParameter("the rules have no policies")
        added, known = rules_of_policies(policies, self._acls.kinds), self._acls.rules.get(name, ())
        if request.ext.get(ADDS) == "true":
            rules = list(known)
            for rule in added:
                rules = with_added(rules, rule)
        else:
            replaced = {(rule.policy, rule.pattern) for rule in added}
            kept = [rule for rule in known if (rule.policy, rule.pattern) not in replaced]
            rules = [*kept, *added]
        self._acls.replace_rules(name, rules)
        log.info("rules changed", user=name, by=request.principal.user or "nobody")
        await self._save()
        return Response()

    async def _save(self) -> None:
        await self._users.saved()
        await self._acls.saved()

    def _user(self, name: str) -> User:
        user = self._users.users.get(name)
        if user is None:
            raise RequestError(ResponseCode.USER_NOT_EXIST, f"there is no user {name}")
        return user

    def _check_super(self, request: Request, target: User) -> None:
        """Refuse changes to a Super user by any other user. Raises NoPermission."""
        if target.is_super and not self._is_super(request):
            raise NoPermission(f"{target.name} is a Super user: only Super users may change it")

    def _is_super(self, request: Request) -> bool:
        """Return whether a Super user, or without users an administrator, sent the request."""
        if not request.principal.user:
            return not self._config.authentication_enabled
        asker = self._users.users.get(request.principal.user)
        return asker is not None and asker.is_super

    def _check_not_last(self, user: User) -> None:
        others = (each for name, each in self._users.users.items() if name != user.name)
        is_needed = self._config.authentication_enabled and user.is_super and user.is_enabled
        if is_needed and not any(each.is_super and each.is_enabled for each in others):
            raise NoPermission(f"{user.name} is the last Super user: create another one first")

    def _build_shown(self, request: Request, user: User) -> dict[str, Any]:
        shown = user_to_json(user)
        is_private = is_loopback(request.principal.host) or request.connection.caller.is_tls
        if not (is_private and self._is_super(request)):
            del shown["password"]
        return shown


def _object(request: Request) -> Mapping[str, Any]:
    check_size(request.body, ADMIN_BODY_SIZE_BYTES_MAX)
    found = fastjson.loads(request.body) if request.body else {}
    if not isinstance(found, dict):
        raise InvalidParameter("the body is not a JSON object")
    return found


def _username(request: Request) -> str:
    return check_name(request.ext.get("username", ""))


def _user_info(request: Request) -> tuple[Mapping[str, Any], str]:
    """Return the request's user data and name."""
    info, name = _object(request), _username(request)
    _check_repeated(info, "username", name)
    return info, name


def _check_repeated(info: Mapping[str, Any], field: str, name: str) -> None:
    """Check the name that RocketMQ's tools repeat in the body. Raises InvalidParameter."""
    repeated = info.get(field)
    if repeated not in (None, "", name):
        raise InvalidParameter(
            f"the header's {field} is {name[:80]}, the body's is {str(repeated)[:80]}: name one "
            "user"
        )


def _subject(request: Request) -> str:
    """Return the user to whom the rules apply."""
    text = request.ext.get("subject", "")
    if not text.startswith(SUBJECT):
        raise InvalidParameter(f"the subject is {text[:80]!r}; expected {SUBJECT}name")
    return check_name(text.removeprefix(SUBJECT))


def _is_super(info: Mapping[str, Any], *, before: bool) -> bool:
    kind = str(info.get("userType") or "").lower()
    if kind not in ("", "super", "normal"):
        raise InvalidParameter(f"a user is Super or Normal, not {kind[:40]}")
    return kind == "super" if kind else before


def _is_enabled(info: Mapping[str, Any], *, before: bool) -> bool:
    status = str(info.get("userStatus") or "").lower()
    if status not in ("", "enable", "disable"):
        raise InvalidParameter(f"a user's status is enable or disable, not {status[:40]}")
    return status == "enable" if status else before


def _acl(name: str, rules: "tuple[Rule, ...] | list[Rule]") -> dict[str, Any]:
    return {"policies": policies_to_json(rules), "subject": SUBJECT + name}


def _answer(document: Any) -> Response:
    return Response(body=fastjson.dumps(document).encode())
