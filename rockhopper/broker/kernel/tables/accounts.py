"""Users and their rules, in ``config/users.json`` and ``config/acls.json``.

Only the owner may read the files. Their layout is Rockhopper's; the entries have the values of
RocketMQ's UserInfo and AclInfo. Secrets are in clear text, because an HMAC cannot be checked
without them. If a file and its backup are damaged, the broker does not start, because starting
without rules could grant access that was denied.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rockhopper.broker.kernel.tables.json_table import JsonObject, JsonTable
from rockhopper.broker.store.files.disk import write_atomically
from rockhopper.broker.users.access import ResourceKind
from rockhopper.broker.users.accounts import (
    Pattern,
    PolicyType,
    Rule,
    User,
    action_names,
    check_name,
    parse_actions,
    parse_sources,
)
from rockhopper.broker.users.errors import InvalidParameter
from rockhopper.broker.users.guard import Guard

OWNER_ONLY = 0o600


class _AccountTable(JsonTable):
    """Name -> a JSON value; logs show only the names."""

    without = "all users and rules are lost, and initAuthenticationUser creates the first one"

    def __init__(self, path: Path, *, now_ms: Callable[[], int]) -> None:
        super().__init__(path, now_ms=now_ms)
        self.guard: Guard | None = None
        """Follows changed and deleted entries; None before it uses the table."""

    file_mode = OWNER_ONLY
    refuses_lost_changes = True

    def _replace(self, path: Path, data: bytes, backup: bytes | None = None) -> None:
        write_atomically(path, data, backup, mode=self.file_mode)

    def _differences(self, saved: bytes, found: bytes) -> list[str]:
        super()._differences(saved, found)
        return ["not shown, because it contains secrets"]

    def _changed(self, name: str) -> None:
        self.version.advance(self._now_ms())
        self.mark_changed(name)
        self.save_soon()
        self.note_entry(name)
        if self.guard is not None:
            self._notify(self.guard, name)

    def _notify(self, guard: Guard, name: str) -> None:
        """Make *guard* follow the change of an entry."""
        guard.rules_changed()


class UserTable(_AccountTable):
    """The users by name."""

    def __init__(self, path: Path, *, now_ms: Callable[[], int]) -> None:
        super().__init__(path, now_ms=now_ms)
        self.users: dict[str, User] = {}

    @property
    def has_super(self) -> bool:
        """Whether a user exists that can grant permissions to others."""
        return any(user.is_super and user.is_enabled for user in self.users.values())

    def to_json(self) -> JsonObject:
        """Return the content of the file."""
        users = {name: user_to_json(user) for name, user in self.users.copy().items()}
        return {"dataVersion": self.version.to_json(), "users": users}

    def from_json(self, document: JsonObject) -> None:
        """Load the users of a file. Raises ValueError."""
        users = _users_of(document)
        self.users.clear()
        self.users.update(users)

    def store_user(self, user: User) -> None:
        """Store a user, and save soon."""
        self.users[user.name] = user
        self._changed(user.name)

    def _notify(self, guard: Guard, name: str) -> None:
        super()._notify(guard, name)
        guard.user_changed(name)

    def delete(self, name: str) -> None:
        """Delete a user, if it exists."""
        if self.users.pop(name, None) is not None:
            self._changed(name)

    def entry(self, name: str) -> Any:
        """See JsonTable."""
        user = self.users.get(name)
        return None if user is None else user_to_json(user)

    def take_entry(self, name: str, value: Any) -> None:
        """See JsonTable."""
        if value is None:
            self.delete(name)
        else:
            self.store_user(_user(name, value))

    def _replay(self, name: str, value: Any) -> None:
        if value is None:
            self.users.pop(name, None)
        else:
            self.users[name] = _user(name, value)


class AclTable(_AccountTable):
    """The rules by the name of their user."""

    def __init__(
        self,
        path: Path,
        *,
        now_ms: Callable[[], int],
        kinds: Sequence[ResourceKind] | None = None,
    ) -> None:
        super().__init__(path, now_ms=now_ms)
        self.rules: dict[str, tuple[Rule, ...]] = {}
        self.kinds = kinds
        """The kinds of resources that rules may name; None: any."""

    def to_json(self) -> JsonObject:
        """Return the content of the file."""
        acls = {name: policies_to_json(rules) for name, rules in self.rules.copy().items()}
        return {"acls": acls, "dataVersion": self.version.to_json()}

    def from_json(self, document: JsonObject) -> None:
        """Load the rules of a file. Raises ValueError."""
        rules = _acls_of(document, self.kinds)
        self.rules.clear()
        self.rules.update(rules)

    def _replay(self, name: str, value: Any) -> None:
        if value is None:
            self.rules.pop(name, None)
        else:
            self.rules[name] = _rules(value, self.kinds)

    def replace_rules(self, name: str, rules: Sequence[Rule]) -> None:
        """Replace a user's rules; an empty sequence deletes them."""
        if rules:
            self.rules[name] = tuple(rules)
        elif self.rules.pop(name, None) is None:
            return
        self._changed(name)

    def entry(self, name: str) -> Any:
        """See JsonTable."""
        rules = self.rules.get(name)
        return None if rules is None else policies_to_json(rules)

    def take_entry(self, name: str, value: Any) -> None:
        """See JsonTable."""
        self.replace_rules(name, () if value is None else _rules(value, self.kinds))


def accounts_to_json(users: UserTable, acls: AclTable) -> JsonObject:
    """Return both tables as one document."""
    return users.to_json() | acls.to_json()


def read_accounts(document: Any) -> tuple[dict[str, User], dict[str, tuple[Rule, ...]]]:
    """Decode such a document, with rules about any kind of resource.

    Raises ValueError, whose message contains no secret.
    """
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return _users_of(document), _acls_of(document, None)


def _users_of(document: JsonObject) -> dict[str, User]:
    found = document.get("users")
    if not isinstance(found, dict):
        raise ValueError("it has no users")
    return {name: _user(name, value) for name, value in found.items()}


def _acls_of(
    document: JsonObject, kinds: Sequence[ResourceKind] | None
) -> dict[str, tuple[Rule, ...]]:
    found = document.get("acls")
    if not isinstance(found, dict):
        raise ValueError("it has no acls")
    return {name: _rules(value, kinds) for name, value in found.items()}


def user_to_json(user: User) -> JsonObject:
    """Encode a user as RocketMQ's UserInfo, including the secret."""
    return {
        "password": user.secret,
        "userStatus": "enable" if user.is_enabled else "disable",
        "userType": "Super" if user.is_super else "Normal",
        "username": user.name,
    }


def policies_to_json(rules: Sequence[Rule]) -> list[JsonObject]:
    """Encode rules as the policies of RocketMQ's AclInfo."""
    return [
        {
            "entries": [
                {
                    "actions": action_names(rule.actions),
                    "decision": "Allow" if rule.is_allowed else "Deny",
                    "resource": str(rule.pattern),
                    "sourceIps": list(rule.source_ips),
                }
                for rule in rules
                if rule.policy is policy
            ],
            "policyType": policy.value,
        }
        for policy in PolicyType
        if any(rule.policy is policy for rule in rules)
    ]


def rules_of_policies(
    policies: Sequence[Mapping[str, Any]], kinds: Sequence[ResourceKind] | None
) -> list[Rule]:
    """Decode the policies of an AclInfo; *kinds* is as for Pattern. Raises InvalidParameter."""
    rules = []
    for policy in policies:
        name = str(policy.get("policyType") or PolicyType.CUSTOM.value).lower()
        kind = next((each for each in PolicyType if each.value.lower() == name), None)
        if kind is None:
            raise InvalidParameter("a policy is Custom or Default")
        for entry in policy.get("entries") or ():
            rules += _rules_of_entry(entry, kind, kinds)
    return rules


def _rules_of_entry(
    entry: Mapping[str, Any], policy: PolicyType, kinds: Sequence[ResourceKind] | None
) -> list[Rule]:
    decision = str(entry.get("decision", "")).lower()
    if decision not in ("allow", "deny"):
        raise InvalidParameter("a decision is Allow or Deny")
    resources = entry.get("resource", "")
    return [
        Rule(
            Pattern.parse(str(resource), kinds),
            parse_actions([str(each) for each in entry.get("actions") or ()]),
            parse_sources([str(each) for each in entry.get("sourceIps") or ()]),
            decision == "allow",
            policy,
        )
        for resource in (resources if isinstance(resources, list) else [resources])
    ]


def _user(name: str, value: Any) -> User:
    try:
        secret, kind, status = value["password"], value["userType"], value["userStatus"]
        if not isinstance(secret, str) or not secret:
            raise ValueError(f"user {name!r} has no secret")
        return User(check_name(name), secret, kind == "Super", status == "enable")
    except (KeyError, TypeError, InvalidParameter):
        raise ValueError(f"user {name[:80]!r} is invalid") from None


def _rules(value: Any, kinds: Sequence[ResourceKind] | None) -> tuple[Rule, ...]:
    try:
        return tuple(rules_of_policies(value, kinds))
    except InvalidParameter as error:
        raise ValueError(str(error)) from None
