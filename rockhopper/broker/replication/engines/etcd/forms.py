"""The JSON messages of etcd's gRPC gateway that are used here.

Keys and values are base64, 64-bit integers are strings, and fields that are 0, false or empty are
omitted. ``decode`` handles all of that.
"""

from typing import TypeVar

import msgspec

RANGE = "/v3/kv/range"
TXN = "/v3/kv/txn"
PUT = "/v3/kv/put"
GRANT = "/v3/lease/grant"
KEEP_ALIVE = "/v3/lease/keepalive"
REVOKE = "/v3/lease/revoke"
WATCH = "/v3/watch"
AUTHENTICATE = "/v3/auth/authenticate"
STATUS = "/v3/maintenance/status"

Body = dict[str, object]
Form = TypeVar("Form")


class Header(msgspec.Struct):
    """The header of each answer."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class EtcdAnswer(msgspec.Struct):
    """The common part of all answers."""

    header: Header = msgspec.field(default_factory=Header)


class KeyValue(msgspec.Struct):
    """A key and its value; ``mod_revision`` is the revision that last stored it."""

    key: bytes
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0


class RangeAnswer(EtcdAnswer):
    """The answer to RANGE."""

    kvs: list[KeyValue] = []


class OperationAnswer(msgspec.Struct):
    """The result of one operation in a transaction."""

    response_range: RangeAnswer | None = None


class TxnAnswer(EtcdAnswer):
    """The answer to TXN; ``responses`` belong to ``success`` or to ``failure``."""

    succeeded: bool = False
    responses: list[OperationAnswer] = []


class GrantAnswer(EtcdAnswer):
    """The answer to GRANT."""

    id: int = msgspec.field(default=0, name="ID")


class KeptLease(msgspec.Struct):
    """A renewed lease; an expired one has a TTL of 0."""

    ttl_s: int = msgspec.field(default=0, name="TTL")


class KeepAliveAnswer(msgspec.Struct):
    """The answer to KEEP_ALIVE."""

    result: KeptLease = msgspec.field(default_factory=KeptLease)


class TokenAnswer(EtcdAnswer):
    """The answer to AUTHENTICATE."""

    token: str = ""


class StatusAnswer(EtcdAnswer):
    """The answer to STATUS."""

    version: str = ""
    leader: int = 0


class ErrorBody(msgspec.Struct):
    """The body of an answer with an error status, and the error in a failed stream."""

    message: str = ""
    code: int = 0
    """The gRPC status code."""


class WatchEvent(msgspec.Struct):
    """A notification of a change; its content is not used, because the keys are read again."""


class WatchResult(EtcdAnswer):
    """A line of WATCH: the first one has no events."""

    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[WatchEvent] = []


class WatchLine(msgspec.Struct):
    """A result or an error."""

    result: WatchResult | None = None
    error: ErrorBody | None = None


def decode(answer: bytes, form: type[Form]) -> Form:
    """Decode an answer; raise msgspec.MsgspecError."""
    return msgspec.json.decode(answer, type=form, strict=False)


def unchanged(key: bytes, revision: int) -> Body:
    """Compare: that revision last stored the key; 0: the key does not exist."""
    return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def not_after(key: bytes, revision: int) -> Body:
    """Compare: the key does not exist, or that revision or an earlier one stored it."""
    return {"key": key, "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def never(key: bytes) -> Body:
    """Compare: never true, even if the key does not exist."""
    return {"key": key, "target": "MOD", "result": "LESS", "mod_revision": "0"}


def put(key: bytes, value: bytes, lease: int = 0) -> Body:
    """Store a value; with a lease, until the lease expires."""
    return {"key": key, "value": value, "lease": str(lease)}


def under(prefix: bytes) -> Body:
    """Select all keys with this prefix; *prefix* must not end with the byte 0xff."""
    return {"key": prefix, "range_end": prefix[:-1] + bytes([prefix[-1] + 1])}
