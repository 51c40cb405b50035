"""Users and their permissions, as in RocketMQ's auth module: plain values, no files.

A secret is stored here in clear, because an HMAC cannot be checked without it. It appears only in
the files of the tables (broker/kernel/tables/accounts.py) and in responses to Super users.
"""

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import NamedTuple

from rockhopper.broker.users.access import KINDS, Action, Resource, ResourceKind
from rockhopper.broker.users.errors import InvalidParameter

NAME_LENGTH_MAX = 255
ANY = "*"
_ACTIONS = {action.value.lower(): action for action in Action if action is not Action.ADMINISTER}
ALL_ACTIONS = frozenset(_ACTIONS.values())


@dataclass(frozen=True, slots=True)
class User:
    """One account. ``repr`` hides the secret."""

    name: str
    secret: str = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True


class PolicyType(Enum):
    """The policies, in the order of their priority: custom first."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class Pattern(NamedTuple):
    """The resources of a rule: all, all of a kind, those with a prefix, or one by its name."""

    kind: ResourceKind | None
    """None: resources of every kind."""
    name: str
    is_prefix: bool

    @classmethod
    def parse(cls, text: str, kinds: Sequence[ResourceKind] | None = KINDS) -> "Pattern":
        """Parse ``*``, ``Topic:name``, ``Topic:pre*`` or ``Topic:*``, or the same of *kinds*.

        None allows any kind, for a process that does not know those of features. Raises
        InvalidParameter.
        """
        if text == ANY:
            return cls(None, "", is_prefix=True)
        kind_name, separator, name = text.partition(":")
        kind = ResourceKind(kind_name.capitalize())
        is_kind = kind.isalpha() if kinds is None else kind in kinds
        if not separator or not name or not is_kind or ANY in name[:-1] or len(text) > 512:
            *others, last = [each for each in kinds or KINDS if each != ResourceKind.TOPIC]
            raise InvalidParameter(
                f"{text[:200]!r} is not a resource: use *, Topic:name, Topic:prefix*, Topic:*, "
                f"or the same with {', '.join(others)} and {last}"
            )
        return cls(kind, name.removesuffix(ANY), is_prefix=name.endswith(ANY))

    def matches(self, resource: Resource) -> bool:
        """Return whether a rule with this pattern applies to *resource*."""
        if self.kind is None:
            return True
        if self.kind != resource.kind:
            return False
        if self.is_prefix:
            return resource.name.startswith(self.name)
        return resource.name == self.name

    @property
    def rank(self) -> tuple[int, int]:
        """The more specific, the greater."""
        if self.kind is None:
            return 0, 0
        return (1, len(self.name)) if self.is_prefix else (2, 0)

    def __str__(self) -> str:
        if self.kind is None:
            return ANY
        return f"{self.kind}:{self.name}{ANY if self.is_prefix else ''}"


class Rule(NamedTuple):
    """One entry of a policy."""

    pattern: Pattern
    actions: frozenset[Action]
    source_ips: tuple[str, ...]
    """Addresses and networks; empty means all."""
    is_allowed: bool
    policy: PolicyType = PolicyType.CUSTOM

    def concerns(self, actions: Collection[Action], resource: Resource, host: str) -> bool:
        """Return whether this rule applies to any of *actions* on *resource* from *host*."""
        return (
            not self.actions.isdisjoint(actions)
            and self.pattern.matches(resource)
            and (not self.source_ips or any(_is_in(host, source) for source in self.source_ips))
        )

    def __str__(self) -> str:
        decision = "allow" if self.is_allowed else "deny"
        actions = ", ".join(action_names(self.actions))
        places = f" from {', '.join(self.source_ips)}" if self.source_ips else ""
        return f"{decision} {actions} on {self.pattern}{places} ({self.policy.value} policy)"


def with_added(rules: Sequence[Rule], added: Rule) -> list[Rule]:
    """Return *rules* and *added*, without the actions that *added* contradicts.

    Rules about the same resource for the same addresses are merged, one for each decision: a user
    with Pub who is allowed Sub may do both, and if Sub is then denied, may still Pub.
    """
    kept = []
    for rule in rules:
        is_same = (rule.policy, rule.pattern) == (added.policy, added.pattern)
        if not is_same or set(rule.source_ips) != set(added.source_ips):
            kept.append(rule)
        elif rule.is_allowed == added.is_allowed:
            added = added._replace(actions=rule.actions | added.actions)
        elif left := rule.actions - added.actions:
            kept.append(rule._replace(actions=left))
    return [*kept, added]


class RuleIndex:
    """One user's rules by resource: a lookup costs the same for any number of rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._by_pattern: dict[Pattern, list[Rule]] = {}
        self._prefix_lengths: dict[ResourceKind | None, set[int]] = {}
        for rule in rules:
            pattern = rule.pattern
            self._by_pattern.setdefault(pattern, []).append(rule)
            if pattern.is_prefix:
                self._prefix_lengths.setdefault(pattern.kind, set()).add(len(pattern.name))

    def find_matching(self, resource: Resource) -> list[Rule]:
        """Return the rules whose pattern matches *resource*."""
        kind, name = resource
        patterns = [Pattern(kind, name, is_prefix=False), Pattern.parse(ANY)]
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                patterns.append(Pattern(kind, name[:length], is_prefix=True))
        return [rule for pattern in patterns for rule in self._by_pattern.get(pattern, ())]


def decide(
    rules: Sequence[Rule], actions: Collection[Action], resource: Resource, host: str
) -> Rule | None:
    """Return the rule that decides on any of *actions*; None if none applies, which denies.

    Custom rules come before default ones, then the most specific one; of equal ones, the one that
    denies.
    """
    for policy in PolicyType:
        concerned = [
            rule
            for rule in rules
            if rule.policy is policy and rule.concerns(actions, resource, host)
        ]
        if concerned:
            return max(concerned, key=lambda rule: (rule.pattern.rank, not rule.is_allowed))
    return None


def parse_actions(names: Sequence[str]) -> frozenset[Action]:
    """Parse RocketMQ's names of actions, including All. Raises InvalidParameter."""
    actions: set[Action] = set()
    for name in names:
        lower = name.strip().lower()
        if lower == "all":
            return ALL_ACTIONS
        if lower not in _ACTIONS:
            allowed = ", ".join(["All", *(action.value for action in _ACTIONS.values())])
            raise InvalidParameter(f"{name[:80]!r} is not an action: use one of {allowed}")
        actions.add(_ACTIONS[lower])
    if not actions:
        raise InvalidParameter("a rule needs at least one action: name one, or All")
    return frozenset(actions)


def action_names(actions: frozenset[Action]) -> list[str]:
    """Return RocketMQ's names of *actions*."""
    if actions == ALL_ACTIONS:
        return ["All"]
    return [action.value for action in _ACTIONS.values() if action in actions]


def parse_sources(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses and networks (CIDR) of a rule. Raises InvalidParameter."""
    sources = tuple(text.strip() for text in texts if text.strip())
    for source in sources:
        if _network(source) is None:
            raise InvalidParameter(
                f"{source[:80]!r} is neither an address nor a network such as 192.168.0.0/16"
            )
    return sources


def check_name(name: str) -> str:
    """Return *name* if it is a valid user name. Raises InvalidParameter."""
    if not name or len(name) > NAME_LENGTH_MAX or not name.isprintable() or set(name) & set(" :/,"):
        raise InvalidParameter(
            f"{name[:80]!r} is not a valid user name: use 1 to {NAME_LENGTH_MAX} printable "
            "characters, without blank, colon, slash and comma"
        )
    return name


def _is_in(host: str, source: str) -> bool:
    network, address = _network(source), _address(host)
    return network is not None and address is not None and address in network


@lru_cache(maxsize=1024)
def _network(source: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(source, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
