r"""Reads and writes the JSON dialect of fastjson 1.2, used in RocketMQ's bodies and config files.

It differs from JSON in maps whose keys are not strings; such keys are written without quotes:

    {"offsetTable":{0:5,1:7}}
    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"maxOffset":9}}}

``loads`` reads these forms, and quoted ones. It returns string keys: ``"0"``, and for an object its
compact JSON, which ``MessageQueueKey.parse`` converts. It also reads unquoted names. A repeated
object may be written as ``{"$ref":"$.path.to.it"}``; ``loads`` resolves references by path.

``dumps`` writes keys in alphabetical order and omits fields that are None. It is compact by
default, because RocketMQ's Go client splits some of it by hand and fails on blanks. ``pretty`` is
the form of the config files: a tab for each level, no blank after a colon. Long documents are
written in a thread, piece by piece: one sort or join of everything would hold the interpreter and
block the event loop.
"""

import base64
import heapq
import json
import math
import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache, total_ordering
from itertools import islice
from json.encoder import encode_basestring as _quote
from typing import Any

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

PIECE = 4096
_DEPTH_MAX = 64
_decode_strict = msgspec.json.Decoder().decode
_TOKEN = re.compile(
    r"""\s+|"(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+""",
    re.DOTALL,
)
_is_number = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?").fullmatch
_PATH_STEP = re.compile(r"\.([A-Za-z0-9_$%|-]+)|\[([0-9]+)\]|\[\"((?:[^\"\\]|\\.)*)\"\]")


@total_ordering
class MessageQueueKey:
    """A queue of a topic on a broker (MessageQueue), as the key of a map or as a value."""

    __slots__ = ("broker_name", "queue_id", "topic")

    def __init__(self, topic: str, broker_name: str, queue_id: int) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id

    @classmethod
    def parse(cls, value: object) -> "MessageQueueKey":
        """Return the queue for a key, or an object, returned by ``loads``.

        Raises:
            MalformedBodyError: *value* is not a queue.
        """
        if isinstance(value, MessageQueueKey):
            return value
        if isinstance(value, str):
            value = loads(value)
        if isinstance(value, dict):
            topic, broker_name = value.get("topic"), value.get("brokerName")
            queue_id = value.get("queueId", 0)
            if (
                isinstance(topic, str)
                and isinstance(broker_name, str)
                and isinstance(queue_id, int)
            ):
                return cls(topic, broker_name, queue_id)
        raise MalformedBodyError("a message queue needs topic, brokerName and queueId")

    def as_json(self) -> dict[str, str | int]:
        """Return the object to write."""
        return {"brokerName": self.broker_name, "queueId": self.queue_id, "topic": self.topic}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageQueueKey) and self._key() == other._key()

    def __lt__(self, other: "MessageQueueKey") -> bool:
        return self._key() < other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str, int]:
        return self.topic, self.broker_name, self.queue_id

    def __repr__(self) -> str:
        return f"MessageQueueKey({self.topic!r}, {self.broker_name!r}, {self.queue_id})"


def loads(data: bytes | str) -> Any:
    """Return the value of *data*: dict, list, str, int, float, bool or None.

    Raises:
        MalformedBodyError: *data* is not JSON, even in fastjson's dialect, or nested too deeply.
    """
    try:
        value = _decode_strict(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        value = _loads_dialect(data, error)
    if type(value) is dict or type(value) is list:
        _check_depth(value)
    if b'"$ref"' in data if isinstance(data, bytes) else '"$ref"' in data:
        holders: set[int] = set()
        _find_holders(value, holders)
        value = _resolve(value, value, holders)
    return value


def _check_depth(value: Any, depth: int = 0) -> None:
    """Raise MalformedBodyError for nesting too deep for recursive functions."""
    if depth > _DEPTH_MAX:
        raise MalformedBodyError(f"the body is nested more than {_DEPTH_MAX} levels deep")
    for item in value.values() if type(value) is dict else value:
        if type(item) is dict or type(item) is list:
            _check_depth(item, depth + 1)


def _loads_dialect(data: bytes | str, strict_error: Exception) -> Any:
    try:
        text = data if isinstance(data, str) else data.decode()
        return _decode_strict(_to_strict(text))
    except (msgspec.DecodeError, UnicodeError, RecursionError, _SyntaxError) as error:
        reason = str(error) or str(strict_error)
        raise MalformedBodyError(f"the body is not JSON: {reason}") from None


class _SyntaxError(Exception):
    """The text is not valid even in fastjson's dialect."""


class _OpenContainer:
    """An open object or array: where its text starts, and what may come next."""

    __slots__ = ("in_key", "is_key", "is_object", "start")

    def __init__(self, *, is_object: bool, start: int, is_key: bool) -> None:
        self.is_object = is_object
        self.start = start
        self.is_key = is_key
        self.in_key = is_object


def _to_strict(text: str) -> str:
    """Convert to strict JSON: quote every key, and turn objects used as keys into their text."""
    out: list[str] = []
    levels: list[_OpenContainer] = []
    position = 0
    size = len(text)
    while position < size:
        match = _TOKEN.match(text, position)
        if match is None:
            raise _SyntaxError(f"unexpected character at {position}")
        position = match.end()
        token = match.group()
        if token.isspace():
            continue
        in_key = bool(levels) and levels[-1].in_key
        if token in "{[":
            _open_level(token, out, levels, position, in_key=in_key)
        elif token in "}]":
            _close_level(token, out, levels, position)
        elif token in (":", ","):
            if levels and levels[-1].is_object:
                levels[-1].in_key = token == ","
            out.append(token)
        else:
            out.append(_strict_scalar(token, position, in_key=in_key))
    return "".join(out)


def _open_level(
    token: str, out: list[str], levels: list[_OpenContainer], position: int, *, in_key: bool
) -> None:
    if len(levels) >= _DEPTH_MAX:
        raise _SyntaxError(f"more than {_DEPTH_MAX} levels")
    if in_key and any(outer.is_key for outer in levels):
        # Each level of quoting doubles the quotes inside.
        raise _SyntaxError(f"an object that is a key has an object as a key, at {position}")
    levels.append(_OpenContainer(is_object=token == "{", start=len(out), is_key=in_key))
    out.append(token)


def _close_level(token: str, out: list[str], levels: list[_OpenContainer], position: int) -> None:
    if not levels:
        raise _SyntaxError(f"unexpected '{token}' at {position}")
    level = levels.pop()
    out.append(token)
    if level.is_key:
        key = "".join(out[level.start :])
        del out[level.start :]
        out.append(json.dumps(key, ensure_ascii=False))


def _strict_scalar(token: str, position: int, *, in_key: bool) -> str:
    if in_key and token[0] != '"':
        return json.dumps(token, ensure_ascii=False)
    if token[0] == '"' or _is_number(token) or token in ("true", "false", "null"):
        return token
    raise _SyntaxError(f"unexpected '{token[:20]}' at {position}")


def _is_reference(value: dict[str, Any]) -> bool:
    return len(value) == 1 and isinstance(value.get("$ref"), str)


def _resolve(value: Any, root: Any, holders: set[int]) -> Any:
    """Return *value* with its references replaced by the parts of *root* they point to.

    *holders* are the ids of containers with references. References to those are kept: replacing
    them could create a cycle.
    """
    if isinstance(value, dict):
        if _is_reference(value):
            target = _find(root, value["$ref"])
            return value if target is None or id(target) in holders else target
        if id(value) in holders:
            return {key: _resolve(item, root, holders) for key, item in value.items()}
    elif isinstance(value, list) and id(value) in holders:
        return [_resolve(item, root, holders) for item in value]
    return value


def _find_holders(value: Any, holders: set[int]) -> bool:
    """Whether *value* is or contains a reference; adds the ids of all that do to *holders*."""
    if isinstance(value, dict):
        found = "$ref" in value
        items: Iterable[Any] = value.values()
    elif isinstance(value, list):
        found = False
        items = value
    else:
        return False
    for item in items:
        if _find_holders(item, holders):
            found = True
    if found:
        holders.add(id(value))
    return found


def _find(root: Any, path: str) -> Any:
    """Return the value at a path such as ``$.table.name[0]``, None if there is none."""
    if not path.startswith("$"):
        return None
    value = root
    position = 1
    while position < len(path):
        step = _PATH_STEP.match(path, position)
        if step is None:
            return None
        position = step.end()
        name, index, quoted = step.groups()
        if index is not None and isinstance(value, list):
            value = value[int(index)] if int(index) < len(value) else None
        elif isinstance(value, dict):
            value = value.get(name or quoted or index)
        else:
            return None
    return value


def dumps(value: object, *, pretty: bool = False, raw_keys: bool = True) -> str:
    """Return the text of *value*.

    Besides JSON's types: enums become their names, bytes base64, sets sorted arrays,
    ``msgspec.Struct`` objects of their fields. Without *raw_keys*, keys that are not strings are
    quoted, which makes strict JSON.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value has another type.
    """
    writer = _Writer(raw_keys=raw_keys, pretty=pretty)
    writer.write(value, 0)
    return writer.text()


class CachedText(str):
    """The cached text of a value, which ``dumps`` inserts unchanged."""

    __slots__ = ()


def format_value(value: object, depth: int) -> CachedText:
    """Return the text of *value* in a pretty document, *depth* levels deep.

    Raises like ``dumps``.
    """
    writer = _Writer(raw_keys=True, pretty=True)
    writer.write(value, depth)
    return CachedText(writer.text())


def queue_text(queue: MessageQueueKey, value: object) -> str:
    """Return the text of an item in a map by queues; ``map_of`` makes the map."""
    return f"{dumps(queue)}:{dumps(value)}"


def map_of(items: Iterable[str]) -> CachedText:
    """Return the text of a map from the texts of its sorted *items*."""
    return CachedText("{" + ",".join(items) + "}")


def array_of(items: Iterable[str]) -> CachedText:
    """Return the text of an array from the texts of its *items*."""
    return CachedText("[" + ",".join(items) + "]")


class _Writer:
    """Appends the text of values to a list, whose pieces are joined as it grows."""

    def __init__(self, *, raw_keys: bool, pretty: bool) -> None:
        self._out: list[str] = []
        self._joined: list[str] = []
        self._raw_keys = raw_keys
        self._pretty = pretty

    def text(self) -> str:
        """Return the complete text."""
        return "".join((*self._joined, *self._out))

    def _join(self) -> None:
        if len(self._out) > PIECE:
            self._joined.append("".join(self._out))
            self._out.clear()

    def write(self, value: object, depth: int) -> None:
        if isinstance(value, str):
            if type(value) is not CachedText:
                value = _quote(value.name if isinstance(value, Enum) else value)
            self._out.append(value)
        elif value is None:
            self._out.append("null")
        elif value is True:
            self._out.append("true")
        elif value is False:
            self._out.append("false")
        elif isinstance(value, Enum):
            self._out.append(_quote(value.name))
        elif isinstance(value, int):
            self._out.append(str(value))
        elif isinstance(value, float):
            self._out.append(_float(value))
        elif isinstance(value, dict):
            self._write_map(value, depth)
        elif isinstance(value, (list, tuple)):
            self._write_array(value, depth)
        elif isinstance(value, (set, frozenset)):
            self._write_array(sorted(value), depth)
        elif isinstance(value, MessageQueueKey):
            self._write_map(value.as_json(), depth)
        elif isinstance(value, msgspec.Struct):
            self._write_map(_struct_fields(value), depth)
        elif isinstance(value, (bytes, bytearray)):
            self._out.append(_quote(base64.b64encode(value).decode()))
        else:
            raise TypeError(f"{type(value).__name__} cannot be encoded as JSON")

    def _write_map(self, value: dict[Any, Any], depth: int) -> None:
        out = self._out
        items = _sort_items([item for item in value.items() if item[1] is not None])
        if not items:
            out.append("{}")
            return
        # As in fastjson: a map whose keys are not strings starts on the line of its brace.
        breaks = self._pretty and isinstance(items[0][0], str)
        out.append("{")
        for index, (key, item) in enumerate(items):
            if index:
                out.append(",")
            if breaks:
                self._break(depth + 1)
            out.append(self._key(key))
            out.append(":")
            self.write(item, depth + 1)
            self._join()
        if self._pretty:
            self._break(depth)
        out.append("}")

    def _write_array(self, value: Iterable[object], depth: int) -> None:
        out = self._out
        items = list(value)
        breaks = self._pretty and any(isinstance(item, _CONTAINERS) for item in items)
        out.append("[")
        for index, item in enumerate(items):
            if index:
                out.append(",")
            if breaks:
                self._break(depth + 1)
            self.write(item, depth + 1)
            self._join()
        if breaks:
            self._break(depth)
        out.append("]")

    def _break(self, depth: int) -> None:
        self._out.append("\n" + "\t" * depth)

    def _key(self, key: object) -> str:
        if isinstance(key, str):
            return _quote(key)
        text = dumps(key, raw_keys=self._raw_keys)
        return text if self._raw_keys else _quote(text)


_CONTAINERS = (dict, list, tuple, set, frozenset, MessageQueueKey, msgspec.Struct)


def _sort_items(items: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    if len(items) <= PIECE:
        items.sort(key=_sort_key)
        return items
    left = iter(items)
    pieces = iter(lambda: sorted(islice(left, PIECE), key=_sort_key), [])
    return list(heapq.merge(*pieces, key=_sort_key))


def _sort_key(item: tuple[Any, Any]) -> tuple[bool, Any]:
    key = item[0]
    return isinstance(key, str), key


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be encoded as JSON")
    return repr(value)


@lru_cache(maxsize=256)
def _struct_names(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))


def _struct_fields(value: msgspec.Struct) -> dict[str, Any]:
    return {name: getattr(value, attribute) for attribute, name in _struct_names(type(value))}
