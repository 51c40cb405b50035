"""Converts plain_acl.yml of RocketMQ 4 to users and rules of RocketMQ 5; reports what is lost.

The file has a fixed structure, so the parser is small and rejects everything it does not know:

    globalWhiteRemoteAddresses: [10.10.103.*]
    accounts:
    - accessKey: RocketMQ
      secretKey: 12345678
      whiteRemoteAddress:
      admin: false
      defaultTopicPerm: DENY
      defaultGroupPerm: SUB
      topicPerms:
      - topicA=DENY
      groupPerms:
      - groupA=PUB|SUB
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rockhopper.protocol.names import TRACE_TOPIC

_KNOWN = frozenset(
    {
        "accessKey",
        "secretKey",
        "whiteRemoteAddress",
        "admin",
        "defaultTopicPerm",
        "defaultGroupPerm",
        "topicPerms",
        "groupPerms",
    }
)
_TOP = frozenset({"globalWhiteRemoteAddresses", "accounts", "dataVersion"})
_ACTIONS = {"PUB": ["Pub"], "SUB": ["Sub"], "PUB|SUB": ["Pub", "Sub"], "SUB|PUB": ["Pub", "Sub"]}
_DENY = "DENY"
_comment = re.compile(r"(^|\s)#.*$")
_pair = re.compile(r"([A-Za-z][\w.]*)\s*:(?:\s+(.*))?$")

_Line = tuple[int, int, str]
"""Line number, indentation and text."""


class PlainAclError(ValueError):
    """RocketMQ 4 could not read the file; the message names the line."""


@dataclass(frozen=True)
class PlainRule:
    """One rule of an account."""

    resource: str
    actions: list[str]
    is_allowed: bool
    is_default: bool = False


@dataclass(frozen=True)
class PlainAccount:
    """One account; ``repr`` omits the secret."""

    name: str
    secret: str = field(repr=False)
    is_super: bool
    rules: list[PlainRule]


@dataclass
class PlainAcl:
    """The accounts of a file, and descriptions of settings without an equivalent in RocketMQ 5."""

    accounts: list[PlainAccount] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def read_plain_acl(text: str) -> PlainAcl:
    """Return the accounts of a file. Raises PlainAclError."""
    document = _SettingsReader(text).document()
    found = PlainAcl()
    for name in document.keys() - _TOP:
        raise PlainAclError(f"{name} is not a key of plain_acl.yml")
    for address in _texts(document.get("globalWhiteRemoteAddresses")):
        found.left_out.append(
            f"globalWhiteRemoteAddresses {address}: clients from there must sign now, too"
        )
    accounts = document.get("accounts") or []
    if not isinstance(accounts, list):
        raise PlainAclError("accounts is not a list")
    for entry in accounts:
        if not isinstance(entry, dict):
            raise PlainAclError("an account is not a mapping")
        found.accounts.append(_account(entry, found.left_out))
    return found


def _account(entry: dict[str, Any], left_out: list[str]) -> PlainAccount:
    for name in entry.keys() - _KNOWN:
        raise PlainAclError(f"{name} is not a setting of an account")
    name, secret = str(entry.get("accessKey") or ""), str(entry.get("secretKey") or "")
    if not name or not secret:
        raise PlainAclError("an account needs accessKey and secretKey")
    if entry.get("whiteRemoteAddress"):
        left_out.append(
            f"whiteRemoteAddress {entry['whiteRemoteAddress']} of {name}: clients from there "
            "must sign now, too"
        )
    rules = [
        *_rules(entry.get("topicPerms"), "Topic", name, left_out),
        *_rules(entry.get("groupPerms"), "Group", name, left_out),
        *_default_rules(entry, name),
    ]
    is_super = entry.get("admin") == "true"
    traces = f"Topic:{TRACE_TOPIC}"
    if not is_super and traces not in [rule.resource for rule in rules]:
        # RocketMQ allows this to every user since 4.9.4.
        rules.append(PlainRule(traces, ["Pub"], True))
    return PlainAccount(name, secret, is_super, rules)


def _default_rules(entry: dict[str, Any], name: str) -> Iterator[PlainRule]:
    for kind, permission in (
        ("Topic", entry.get("defaultTopicPerm")),
        ("Group", entry.get("defaultGroupPerm")),
    ):
        # Without a rule, access is denied.
        if permission and permission != _DENY:
            yield _rule(f"{kind}:*", str(permission), name, is_default=True)


def _rules(value: Any, kind: str, name: str, left_out: list[str]) -> list[PlainRule]:
    found = []
    for text in _texts(value):
        resource, separator, permission = text.partition("=")
        if not separator or not resource:
            raise PlainAclError(f"{text!r} of {name} is not of the form name=PERMISSION")
        if "*" in resource:
            left_out.append(f"{text} of {name}: a * in a name has a different meaning now")
            continue
        found.append(_rule(f"{kind}:{resource.strip()}", permission.strip(), name))
    return found


def _rule(resource: str, permission: str, name: str, *, is_default: bool = False) -> PlainRule:
    if permission == _DENY:
        return PlainRule(resource, ["All"], False, is_default)
    actions = _ACTIONS.get(permission)
    if actions is None:
        raise PlainAclError(
            f"{permission!r} of {name} is not a permission: DENY, PUB, SUB, PUB|SUB"
        )
    return PlainRule(resource, actions, True, is_default)


def _texts(value: Any) -> list[str]:
    if value in (None, ""):
        return []
    if not isinstance(value, list):
        raise PlainAclError(f"{value!r}: expected a list")
    return [str(each) for each in value if each]


class _SettingsReader:
    """Parses nested settings and lists by their indentation."""

    def __init__(self, text: str) -> None:
        self._lines: list[_Line] = []
        for number, line in enumerate(text.splitlines(), 1):
            bare = _comment.sub("", line).rstrip()
            if not bare or bare == "---":
                continue
            if "\t" in bare[: len(bare) - len(bare.lstrip())]:
                raise PlainAclError(f"line {number} is indented with a tab")
            self._lines.append((number, len(bare) - len(bare.lstrip()), bare.lstrip()))
        self._next = 0

    def document(self) -> dict[str, Any]:
        """Return the content of the whole file."""
        if not self._lines:
            return {}
        found = self._settings(self._lines[0][1])
        if self._next < len(self._lines):
            raise PlainAclError(f"line {self._lines[self._next][0]}: inconsistent indentation")
        return found

    def _peek(self) -> _Line | None:
        return self._lines[self._next] if self._next < len(self._lines) else None

    def _settings(self, indent: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (line := self._peek()) is not None and line[1] == indent and line[2][:2] != "- ":
            pair = _pair.match(line[2])
            if pair is None:
                raise PlainAclError(f"line {line[0]}: expected `name: value`")
            if pair[1] in found:
                raise PlainAclError(f"line {line[0]} repeats {pair[1]}")
            self._next += 1
            found[pair[1]] = self._value(pair[2], indent, line[0])
        return found

    def _value(self, text: str | None, indent: int, number: int) -> Any:
        if text:
            return _scalar(text, number)
        line = self._peek()
        if line is None or line[1] < indent:
            return None
        if line[2][:2] == "- " or line[2] == "-":
            return self._list(line[1])
        return self._settings(line[1]) if line[1] > indent else None

    def _list(self, indent: int) -> list[Any]:
        found: list[Any] = []
        while (line := self._peek()) is not None and line[1] == indent and line[2][:1] == "-":
            text = line[2][1:].lstrip()
            inner = indent + len(line[2]) - len(text)
            if _pair.match(text):
                # The first setting of a list item follows the dash on the same line.
                self._lines[self._next] = line[0], inner, text
                found.append(self._settings(inner))
            else:
                self._next += 1
                found.append(_scalar(text, line[0]))
        return found


def _scalar(text: str, number: int) -> Any:
    if text[:1] == "[" and text[-1:] == "]":
        return [_scalar(part.strip(), number) for part in text[1:-1].split(",") if part.strip()]
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    if text[:1] in ("{", "&", "*", "!", "|", ">", "%", "@", "`", "'", '"', "["):
        raise PlainAclError(
            f"line {number}: {text[:40]!r}: this YAML syntax is not supported in a plain_acl.yml"
        )
    return text
