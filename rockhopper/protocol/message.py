"""Message: a message to send. StoredMessage: a message that a broker has stored."""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rockhopper.protocol.addresses import ip_bytes
from rockhopper.protocol.compression import DECOMPRESSED_SIZE_BYTES_MAX, decompress
from rockhopper.protocol.message_ids import offset_message_id
from rockhopper.protocol.names import surrogate_error
from rockhopper.protocol.properties import (
    PROPERTY_DELAY_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_PRIORITY,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT,
    SYSTEM_PROPERTIES,
)
from rockhopper.protocol.store.delay_levels import DEFAULT_DELAY_LEVELS
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED
from rockhopper.protocol.times import aware_ms, check_ms

_SEPARATORS = frozenset("\x01\x02")
_DELAY_LEVELS = len(DEFAULT_DELAY_LEVELS.split())
_OLD_DELAY = "delay_ms is now delay_s, in seconds"
_ARGUMENTS = {
    PROPERTY_TAGS: "tags",
    PROPERTY_KEYS: "keys",
    PROPERTY_SHARDING_KEY: "sharding_key",
}
_NO_TIMES = (None, None, None, None, None)


class Message:
    """A message to send.

    ``tags`` is one tag to filter by; ``keys`` are for finding the message later. Delay a message by
    one of ``delay_level`` (1 to 18: 1s 5s 10s 30s 1m … 10m 20m 30m 1h 2h), ``delay_s`` (by the
    broker's clock, to the millisecond), ``deliver_at`` (a datetime with a time zone) and
    ``deliver_at_ms`` (milliseconds since 1970). Messages with the same ``sharding_key`` go to one
    queue, in order. With ``wait_stored=False`` the broker answers before it flushes the message,
    whatever its flush mode.
    """

    __slots__ = (
        "_keys",
        "body",
        "delay_level",
        "delay_s",
        "deliver_at_ms",
        "flag",
        "priority",
        "properties",
        "sharding_key",
        "tags",
        "topic",
        "wait_stored",
    )

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        delay_level: int | None = None,
        delay_s: float | None = None,
        deliver_at_ms: int | None = None,
        deliver_at: datetime | None = None,
        sharding_key: str | None = None,
        priority: int | None = None,
        wait_stored: bool = True,
        delay_ms: int | None = None,
    ) -> None:
        """*priority* is 0 or more, for topics with ``message.type`` PRIORITY.

        A broker with fewer levels than *delay_level* in its messageDelayLevel uses its last one;
        levels above the default 18 log a warning. *delay_ms* is the deprecated form of *delay_s*.

        *keys* is one key, a sequence of keys, or, as in RocketMQ, a string of keys separated by
        blanks.

        Raises:
            TypeError: an argument has another type.
            ValueError: a property's name is reserved, or a property is empty or contains the
                characters 1 or 2; a key contains a blank; two delivery times are given, or one
                without a time zone; a level is below 0.
        """
        if not isinstance(topic, str):
            raise TypeError(f"a topic must be a string, not {type(topic).__name__}: {topic!r:.80}")
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise wrong_body(body)
        times = (delay_level, delay_s, deliver_at_ms, deliver_at, delay_ms)
        if times != _NO_TIMES:
            delay_s = _check_delay(times, delay_s, delay_ms)
        if priority is not None:
            _check_priority(priority)
        self.topic = topic
        self.body = bytes(body)
        self.tags = tags or None
        self._keys = message_keys(keys) if keys != () else ()
        self.properties = _copy_properties(properties) if properties else {}
        self.flag = flag
        self.delay_level = delay_level
        self.delay_s = delay_s
        self.deliver_at_ms = (
            deliver_at_ms if deliver_at is None else aware_ms("deliver_at", deliver_at)
        )
        self.sharding_key = sharding_key
        self.priority = priority
        self.wait_stored = wait_stored
        if not self.is_plain:
            self._check_properties()

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys by which to find the message later; assign a string or a sequence."""
        return self._keys

    @keys.setter
    def keys(self, keys: str | Iterable[str]) -> None:
        self._keys = message_keys(keys)

    @property
    def delay_ms(self) -> int | None:
        """Deprecated form of ``delay_s``."""
        warnings.warn(_OLD_DELAY, DeprecationWarning, stacklevel=2)
        return None if self.delay_s is None else round(self.delay_s * 1000)

    @delay_ms.setter
    def delay_ms(self, delay_ms: int | None) -> None:
        warnings.warn(_OLD_DELAY, DeprecationWarning, stacklevel=2)
        self.delay_s = None if delay_ms is None else delay_ms / 1000

    @property
    def is_delayed(self) -> bool:
        """Whether it has a delay or a delivery time."""
        return not (self.delay_level is self.delay_s is self.deliver_at_ms is None)

    @property
    def is_plain(self) -> bool:
        """Whether its only properties are its id and WAIT=true."""
        return (
            self.wait_stored
            and self.sharding_key is None
            and self.priority is None
            and self.delay_level is self.delay_s is self.deliver_at_ms is None
            and not (self.properties or self._keys or self.tags)
        )

    def _check_properties(self) -> None:
        for name in self.properties:
            if not isinstance(name, str):
                raise TypeError(f"the name of property {name!r} must be a string")
            if name in SYSTEM_PROPERTIES:
                raise ValueError(f"property '{name}' belongs to RocketMQ: choose another name")
        for name, value in self.wire_properties().items():
            _check_property(name, value)

    def wire_properties(self, unique_key: str | None = None) -> dict[str, str]:
        """All properties as sent: the message's own, and those of its other fields.

        *unique_key* is the id that the producer assigns to this send.
        """
        properties = dict(self.properties)
        if self.keys:
            properties[PROPERTY_KEYS] = " ".join(self.keys)
        if unique_key is not None:
            properties[PROPERTY_UNIQUE_KEY] = unique_key
        if self.sharding_key is not None:
            properties[PROPERTY_SHARDING_KEY] = self.sharding_key
        if self.priority is not None:
            properties[PROPERTY_PRIORITY] = str(self.priority)
        if self.delay_level is not None:
            properties[PROPERTY_DELAY_LEVEL] = str(self.delay_level)
        if self.delay_s is not None:
            properties[PROPERTY_TIMER_DELAY_MS] = str(round(self.delay_s * 1000))
        if self.deliver_at_ms is not None:
            properties[PROPERTY_TIMER_DELIVER_MS] = str(self.deliver_at_ms)
        properties[PROPERTY_WAIT] = "true" if self.wait_stored else "false"
        if self.tags is not None:
            properties[PROPERTY_TAGS] = self.tags
        return properties

    def __repr__(self) -> str:
        size = len(self.body)
        return f"Message({self.topic!r}, {size} bytes, tags={self.tags!r}, keys={self.keys!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Message.__slots__)

    __hash__ = None  # type: ignore[assignment]


def message_keys(keys: str | Iterable[str]) -> tuple[str, ...]:
    """Return the keys in a string, separated by blanks, or in a sequence.

    Raises:
        TypeError: a key is not a string.
        ValueError: a key is empty or contains a blank.
    """
    if isinstance(keys, str):
        return tuple(key for key in keys.split(" ") if key)
    if isinstance(keys, bytes | bytearray) or not hasattr(keys, "__iter__"):
        raise TypeError(f"keys must be a string or a sequence of strings, not {keys!r}")
    keys = tuple(keys)
    for key in keys:
        if not isinstance(key, str):
            raise TypeError(f"a key must be a string, not {type(key).__name__}: {key!r}")
        if not key:
            raise ValueError("a key is empty: leave it out, or give it a value")
        if " " in key:
            raise ValueError(f"{key!r} cannot be a key: keys are separated by blanks when stored")
    return keys


def _check_delay(
    times: tuple[object, ...], delay_s: float | None, delay_ms: float | None
) -> float | None:
    if delay_ms is not None:
        warnings.warn(_OLD_DELAY, DeprecationWarning, stacklevel=3)
        _check_number("delay_ms", delay_ms, "milliseconds")
        delay_s = delay_ms / 1000
    if sum(time is not None for time in times) > 1:
        raise ValueError(
            "delay_level, delay_s, deliver_at_ms and deliver_at are mutually exclusive: pass one"
        )
    if delay_s is not None:
        _check_number("delay_s", delay_s, "seconds")
        if not 0 <= delay_s < math.inf:
            raise ValueError(f"delay_s is {delay_s}: it must be finite, and 0 or above")
    if times[2] is not None:
        check_ms("deliver_at_ms", times[2])
    if times[0] is not None:
        check_delay_level(times[0], least=0)
    return delay_s


def _check_number(name: str, value: object, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: it must be a number of {unit}")


def wrong_body(body: object) -> TypeError:
    """Return the error for a body that is not bytes."""
    maker = "text.encode()" if isinstance(body, str) else "JSON().encode(value)"
    return TypeError(f"a body must be bytes, not {type(body).__name__}: {maker} converts it")


def check_delay_level(level: object, *, least: int) -> None:
    """Check a delay level that an application passes; log a warning above the default levels.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is below *least*.
    """
    if isinstance(level, bool) or not isinstance(level, int):
        raise TypeError(f"delay_level is {level!r}: it must be a whole number")
    if level < least:
        raise ValueError(f"delay_level is {level}: it must be 1 or above")
    if level > _DELAY_LEVELS:
        warnings.warn(
            f"delay_level is {level}, and brokers have {_DELAY_LEVELS} levels unless their "
            "messageDelayLevel says otherwise: one with fewer takes its last level (2 h by "
            "default); delay_s takes any delay",
            stacklevel=4,
        )


def _check_priority(priority: object) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise TypeError(f"priority is {priority!r}: it must be a whole number")
    if priority < 0:
        raise ValueError(f"priority is {priority}: it must be 0 or above")


def _copy_properties(properties: Mapping[str, str]) -> dict[str, str]:
    try:
        return dict(properties)
    except (TypeError, ValueError):
        raise TypeError(
            f"properties is {type(properties).__name__}: it must be a mapping of strings, as in "
            '{"region": "eu"}'
        ) from None


def _check_property(name: str, value: str) -> None:
    what = _ARGUMENTS.get(name) or f"property {name!r}"
    if not isinstance(value, str):
        raise TypeError(f"{what} is {type(value).__name__}: it must be a string")
    if not name or not value:
        raise ValueError(f"{what} is {value!r}: an empty name or value would be lost in transit")
    if not _SEPARATORS.isdisjoint(name) or not _SEPARATORS.isdisjoint(value):
        raise ValueError(f"{what} holds the character 1 or 2, which separate properties")
    for text in (name, value):
        if not text.isascii() and (reason := surrogate_error(text)):
            raise ValueError(f"{what} {reason}")


@dataclass(slots=True)
class StoredMessage:
    """A message as stored in the commit log (MessageExt)."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    body: bytes
    """The stored body: still compressed if the producer compressed it."""
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int = 0
    born_host: str = "0.0.0.0"
    born_port: int = 0
    store_time_ms: int = 0
    store_host: str = "0.0.0.0"
    store_port: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    size_bytes: int = 0
    """The size of the record; for a message inside a batch record, of its part."""

    @property
    def message_id(self) -> str:
        """The producer's id of the message (UNIQ_KEY); without one, the offset message id."""
        return self.properties.get(PROPERTY_UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id of the storage position: host, port and commit log offset in hex."""
        return offset_message_id(ip_bytes(self.store_host), self.store_port, self.commit_log_offset)

    @property
    def tags(self) -> str | None:
        """The tag."""
        return self.properties.get(PROPERTY_TAGS)

    @property
    def keys(self) -> list[str]:
        """The keys by which the message can be queried, besides its id."""
        return [key for key in self.properties.get(PROPERTY_KEYS, "").split(" ") if key]

    def decompressed_body(self, size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX) -> bytes:
        """Return the body as the producer's application sent it.

        Raises:
            CompressionError: see protocol.compression.
        """
        if self.sys_flag & SYS_FLAG_COMPRESSED:
            return decompress(self.body, self.sys_flag, size_bytes_max)
        return self.body
