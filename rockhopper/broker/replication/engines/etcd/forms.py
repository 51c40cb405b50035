"""The JSON forms of etcd's gRPC gateway, as far as they are used here.

Keys and values are base64, integers of 64 bits are strings, and fields that are 0, false or empty
are left out: decode with ``decoded``, which takes all of that.
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
    """What stands above each answer."""

    cluster_id: int = 0
    member_id: int = 0
    revision: int = 0
    raft_term: int = 0


class Answer(msgspec.Struct):
    """What all answers have."""

    header: Header = msgspec.field(default_factory=Header)


class KeyValue(msgspec.Struct):
    """A key as it was stored last, by the revision ``mod_revision``."""

    key: bytes
    value: bytes = b""
    mod_revision: int = 0
    lease: int = 0


class RangeAnswer(Answer):
    """Of RANGE."""

    kvs: list[KeyValue] = []


class OperationAnswer(msgspec.Struct):
    """Of one operation within a transaction."""

    response_range: RangeAnswer | None = None


class TxnAnswer(Answer):
    """Of TXN; ``responses`` are of ``success`` or of ``failure``."""

    succeeded: bool = False
    responses: list[OperationAnswer] = []


class GrantAnswer(Answer):
    """Of GRANT."""

    id: int = msgspec.field(default=0, name="ID")


class KeptLease(msgspec.Struct):
    """A lease that is gone has no time to live."""

    ttl_s: int = msgspec.field(default=0, name="TTL")


class KeepAliveAnswer(msgspec.Struct):
    """Of KEEP_ALIVE."""

    result: KeptLease = msgspec.field(default_factory=KeptLease)


class TokenAnswer(Answer):
    """Of AUTHENTICATE."""

    token: str = ""


class StatusAnswer(Answer):
    """Of STATUS."""

    version: str = ""
    leader: int = 0


class Refusal(msgspec.Struct):
    """What comes with another status than 200, and in a stream that failed."""

    message: str = ""
    code: int = 0
    """Of gRPC."""


class Event(msgspec.Struct):
    """That something changed; what there is now is read."""


class WatchResult(Answer):
    """A line of WATCH: the first has no events."""

    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    events: list[Event] = []


class WatchLine(msgspec.Struct):
    """Either of them."""

    result: WatchResult | None = None
    error: Refusal | None = None


def decoded(answer: bytes, form: type[Form]) -> Form:
    """Read an answer; raises msgspec.MsgspecError."""
    return msgspec.json.decode(answer, type=form, strict=False)


def unchanged(key: bytes, revision: int) -> Body:
    """Compare: the key was last stored by that revision; 0 means that there is none."""
    return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(revision)}


def not_after(key: bytes, revision: int) -> Body:
    """Compare: there is no such key, or it was stored by that revision at the latest."""
    return {"key": key, "target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}


def never(key: bytes) -> Body:
    """Compare: false of every key, one that is absent as well."""
    return {"key": key, "target": "MOD", "result": "LESS", "mod_revision": "0"}


def put(key: bytes, value: bytes, lease: int = 0) -> Body:
    """Store a value, for as long as the lease lives if there is one."""
    return {"key": key, "value": value, "lease": str(lease)}


def under(prefix: bytes) -> Body:
    """All keys that begin so; *prefix* does not end with the largest byte."""
    return {"key": prefix, "range_end": prefix[:-1] + bytes([prefix[-1] + 1])}
