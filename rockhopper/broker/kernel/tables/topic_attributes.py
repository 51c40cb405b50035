"""Attributes of topics and groups: the valid ones, and the effects of ``+key=value,-key``.

RocketMQ: TopicAttributes, SubscriptionGroupAttributes, AttributeUtil. The error messages are
RocketMQ's, because tools show them.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

ATTRIBUTE_QUEUE_TYPE = "queue.type"
ATTRIBUTE_CLEANUP_POLICY = "cleanup.policy"
ATTRIBUTE_MESSAGE_TYPE = "message.type"
ATTRIBUTE_RESERVE_TIME = "reserve.time"
ATTRIBUTE_PRIORITY_FACTOR = "priority.factor"

CLEANUP_POLICY_COMPACTION = "COMPACTION"
QUEUE_TYPE_SIMPLE = "SimpleCQ"
QUEUE_TYPE_BATCH = "BatchCQ"
MESSAGE_TYPE_NORMAL = "NORMAL"
MESSAGE_TYPE_FIFO = "FIFO"
MESSAGE_TYPE_DELAY = "DELAY"
MESSAGE_TYPE_TRANSACTION = "TRANSACTION"
MESSAGE_TYPE_MIXED = "MIXED"
MESSAGE_TYPE_PRIORITY = "PRIORITY"

_is_number = re.compile(r"-?[0-9]{1,19}").fullmatch


class AttributeRule(NamedTuple):
    """One attribute: its values (None: a number), whether it may change, and its default."""

    values: frozenset[str] | None
    is_changeable: bool
    default: str
    range: tuple[int, int] | None = None


RULES: Mapping[str, AttributeRule] = {
    ATTRIBUTE_QUEUE_TYPE: AttributeRule(
        frozenset((QUEUE_TYPE_SIMPLE, QUEUE_TYPE_BATCH)), False, QUEUE_TYPE_SIMPLE
    ),
    ATTRIBUTE_CLEANUP_POLICY: AttributeRule(
        frozenset(("DELETE", CLEANUP_POLICY_COMPACTION)), False, "DELETE"
    ),
    ATTRIBUTE_MESSAGE_TYPE: AttributeRule(
        frozenset(
            (
                "UNSPECIFIED",
                MESSAGE_TYPE_NORMAL,
                MESSAGE_TYPE_FIFO,
                MESSAGE_TYPE_DELAY,
                MESSAGE_TYPE_TRANSACTION,
                MESSAGE_TYPE_MIXED,
                MESSAGE_TYPE_PRIORITY,
            )
        ),
        True,
        MESSAGE_TYPE_NORMAL,
    ),
    ATTRIBUTE_RESERVE_TIME: AttributeRule(None, True, "-1", (-1, 2**63 - 1)),
}


GROUP_RULES: Mapping[str, AttributeRule] = {
    ATTRIBUTE_PRIORITY_FACTOR: AttributeRule(None, True, "100", (0, 100)),
}


_NOT_COMPACTED = (
    "cleanup.policy=COMPACTION is not supported: no topic is compacted here, and retention would "
    "delete the last value of a key. Remove the attribute, and keep the last values elsewhere"
)


class AttributeChangeError(ValueError):
    """A change of attributes that is not allowed; str() describes it."""


def parse_attribute_changes(text: str) -> dict[str, str]:
    """Parse ``+k=v,-k`` to a dict whose keys include the sign. Raises AttributeChangeError."""
    changes: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, separator, value = part.partition("=")
        if key[:1] == "+" and (not separator or not value):
            raise AttributeChangeError(f"add/alter attribute format is wrong: {part}")
        if key in changes:
            raise AttributeChangeError(f"key duplication. key: {key[1:]}")
        changes[key] = value
    return changes


def _check_change(key: str, rule: AttributeRule, value: str, *, is_new: bool) -> None:
    if value == CLEANUP_POLICY_COMPACTION:
        raise AttributeChangeError(_NOT_COMPACTED)
    if not is_new and not rule.is_changeable:
        raise AttributeChangeError(f"attempt to update an unchangeable attribute. key: {key}")


def change_attributes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    rules: Mapping[str, AttributeRule] = RULES,
) -> dict[str, str]:
    """Return *current* after *changes*, whose keys start with + or -.

    *current* None: the owner is being created.

    Raises:
        AttributeChangeError: an attribute or value is unknown, or may not change.
    """
    after = dict(current or {})
    touched: set[str] = set()
    for signed_key, value in changes.items():
        sign, key = signed_key[:1], signed_key[1:].strip()
        if sign not in ("+", "-") or not key:
            raise AttributeChangeError(f"wrong format key: {signed_key}")
        rule = rules.get(key)
        if rule is None:
            raise AttributeChangeError(f"unsupported key: {key}")
        if key in touched:
            raise AttributeChangeError(f"key duplication. key: {key}")
        touched.add(key)
        if sign == "+":
            _check_value(key, rule, value)
            if after.get(key, rule.default) != value:
                _check_change(key, rule, value, is_new=current is None)
            after[key] = value
        else:
            _check_removal(key, rule, current)
            del after[key]
    return after


def _check_removal(key: str, rule: AttributeRule, current: Mapping[str, str] | None) -> None:
    if current is None:
        raise AttributeChangeError(
            f"only add attribute is supported while creating topic. key: {key}"
        )
    if key not in current:
        raise AttributeChangeError(f"attempt to delete a nonexistent key: {key}")
    if not rule.is_changeable:
        raise AttributeChangeError(f"attempt to delete an unchangeable attribute. key: {key}")


def _check_value(key: str, rule: AttributeRule, value: str) -> None:
    if rule.values is None:
        if _is_number(value) is None:
            raise AttributeChangeError(f"{key}: {value} is not a whole number")
        if rule.range is not None and not rule.range[0] <= int(value) <= rule.range[1]:
            least, most = rule.range
            raise AttributeChangeError(f"{key}: value is not in range({least}, {most})")
    elif value not in rule.values:
        allowed = ", ".join(sorted(rule.values))
        raise AttributeChangeError(f"{key}: value is not in set: {{{allowed}}}")
