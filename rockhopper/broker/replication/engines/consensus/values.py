"""The stored values of a set in any engine: versioned JSON.

    name                  lease      value
    state                 none       epoch, master, set, minInSync, history, trail
    leader                leader's   id, incarnation, epoch
    members/<id>          15 s       store, incarnation, address, haAddress, lastEpoch, logEnd, ...
    starts/<id>.<store>   none       count, and the process that counted

Unknown fields belong to a later release. A writer preserves them in every value that it may
rewrite: in the state, and, in the record of a set, in another replica's leader and starts. It also
preserves those within the entries of a state, as long as these entries stay. A change that all
writers must know raises ``writer`` of the state; an older release then reads the state but does not
change it. Readers, too, refuse a larger version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar, get_args

import msgspec
from msgspec import UNSET, UnsetType

from rockhopper.broker.replication.election.replica_set import (
    STATE_WRITER,
    Announcement,
    Leader,
    Replica,
    SeenState,
    SetState,
    Term,
)
from rockhopper.broker.replication.engines.engine import EngineError

VERSION = 1

Unknown = tuple[tuple[str, bytes], ...]
"""The fields of a later release: names and stored bytes."""
UnknownInside = tuple[tuple[str, bytes, Unknown], ...]
"""Unknown fields of nested objects: the place, such as ``history.master``, and the known part."""

_Value = TypeVar("_Value", bound="_Versioned")


class UnreadableValueError(EngineError):
    """A value that another program or a later version of this broker wrote."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} in the engine cannot be read: {reason}")
        self.key = key


class _StoredReplica(msgspec.Struct):
    id: int
    store: str


class _StoredTerm(msgspec.Struct):
    epoch: int
    master: _StoredReplica
    why: str


class _Versioned(msgspec.Struct, rename="camel", kw_only=True):
    version: int = VERSION


class _StoredSeenState(msgspec.Struct, frozen=True):
    changes: int = 0
    mark: int = 0


class _StoredState(_Versioned, kw_only=True):
    epoch: int
    master: _StoredReplica
    set: list[_StoredReplica]
    min_in_sync: int
    history: list[_StoredTerm] = []
    trail: list[_StoredSeenState] = []
    writer: int | UnsetType = UNSET


class _StoredLeader(_Versioned, kw_only=True):
    id: int
    incarnation: str
    epoch: int


class _StoredMember(_Versioned, kw_only=True):
    id: int
    store: str
    incarnation: str
    address: str
    ha_address: str
    last_epoch: int
    log_end: int
    clean: bool
    priority: int = 0
    seen_state: _StoredSeenState = msgspec.field(default=_StoredSeenState(), name="sight")
    misses_master: bool = False
    settings: dict[str, str] | UnsetType = UNSET
    own_address: str | UnsetType = UNSET


class _Start(_Versioned, kw_only=True):
    count: int
    counted_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCount:
    """How often a store was started; ``counted_by`` identifies a repeated request."""

    count: int
    counted_by: str
    unknown: Unknown = field(default=(), compare=False)


def encode_state(state: SetState) -> bytes:
    """Encode the value of ``state``."""
    value = _StoredState(
        epoch=state.epoch,
        master=_StoredReplica(*state.master),
        set=[_StoredReplica(*each) for each in sorted(state.in_sync)],
        min_in_sync=state.min_in_sync,
        history=[
            _StoredTerm(each.epoch, _StoredReplica(*each.master), each.why)
            for each in state.history
        ],
        trail=[_StoredSeenState(*each) for each in state.trail],
        writer=UNSET if state.writer == STATE_WRITER else state.writer,
    )
    return with_unknown(value, state.unknown, state.unknown_inside)


def decode_state(key: str, value: bytes) -> SetState:
    """Decode the value of ``state``; raise UnreadableValueError."""
    stored = _decode(key, value, _StoredState)
    return SetState(
        stored.epoch,
        _replica(stored.master),
        frozenset(_replica(each) for each in stored.set),
        stored.min_in_sync,
        tuple(Term(each.epoch, _replica(each.master), each.why) for each in stored.history),
        tuple(SeenState(each.changes, each.mark) for each in stored.trail),
        stored.writer or STATE_WRITER,
        unknown_fields(value, _StoredState),
        unknown_inside(value, _StoredState),
    )


def encode_leader(leader: Leader) -> bytes:
    """Encode the value of ``leader``."""
    return with_unknown(
        _StoredLeader(id=leader.id, incarnation=leader.incarnation, epoch=leader.epoch),
        leader.unknown,
    )


def decode_leader(key: str, value: bytes) -> Leader:
    """Decode the value of ``leader``; raise UnreadableValueError."""
    stored = _decode(key, value, _StoredLeader)
    return Leader(stored.id, stored.incarnation, stored.epoch, unknown_fields(value, _StoredLeader))


def encode_member(member: Announcement) -> bytes:
    """Encode a value under ``members/``."""
    return msgspec.json.encode(
        _StoredMember(
            id=member.replica.id,
            store=member.replica.store,
            incarnation=member.incarnation,
            address=member.address,
            ha_address=member.ha_address,
            last_epoch=member.last_epoch,
            log_end=member.log_end,
            clean=member.is_clean,
            priority=member.priority,
            seen_state=_StoredSeenState(*member.seen_state),
            misses_master=member.misses_master,
            settings=dict(member.settings) or UNSET,
            own_address=member.own_address or UNSET,
        )
    )


def decode_member(key: str, value: bytes) -> Announcement:
    """Decode a value under ``members/``; raise UnreadableValueError."""
    stored = _decode(key, value, _StoredMember)
    return Announcement(
        Replica(stored.id, stored.store),
        stored.incarnation,
        stored.address,
        stored.ha_address,
        stored.last_epoch,
        stored.log_end,
        stored.clean,
        stored.priority,
        SeenState(stored.seen_state.changes, stored.seen_state.mark),
        stored.misses_master,
        tuple(stored.settings.items()) if stored.settings else (),
        stored.own_address or "",
    )


def encode_start(start: StartCount) -> bytes:
    """Encode a value under ``starts/``."""
    return with_unknown(_Start(count=start.count, counted_by=start.counted_by), start.unknown)


def decode_start(key: str, value: bytes) -> StartCount:
    """Decode a value under ``starts/``; raise UnreadableValueError."""
    stored = _decode(key, value, _Start)
    return StartCount(
        count=stored.count, counted_by=stored.counted_by, unknown=unknown_fields(value, _Start)
    )


def unknown_fields(value: bytes, form: type[msgspec.Struct]) -> Unknown:
    """Return the fields of a JSON object that *form* lacks."""
    found = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    known = form.__struct_encode_fields__
    return tuple((name, bytes(raw)) for name, raw in found.items() if name not in known)


def unknown_inside(value: bytes, form: type[msgspec.Struct], place: str = "") -> UnknownInside:
    """Return the unknown fields of all objects nested in a JSON object, also of those in lists."""
    found = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    kept: list[tuple[str, bytes, Unknown]] = []
    for known in msgspec.structs.fields(form):
        raw = found.get(known.encode_name)
        inner = known.type if isinstance(known.type, type) else (*get_args(known.type), None)[0]
        if raw is None or not (isinstance(inner, type) and issubclass(inner, msgspec.Struct)):
            continue
        is_one = inner is known.type
        at = f"{place}{known.encode_name}"
        for each in [raw] if is_one else msgspec.json.decode(raw, type=list[msgspec.Raw]):
            if unknown := unknown_fields(bytes(each), inner):
                plain = msgspec.json.encode(msgspec.json.decode(each, type=inner))
                kept.append((at, plain, unknown))
            kept += unknown_inside(bytes(each), inner, f"{at}.")
    return tuple(kept)


def with_unknown(value: msgspec.Struct, unknown: Unknown, inside: UnknownInside = ()) -> bytes:
    """Encode *value*; in it and in nested objects, the unknown fields follow the known ones."""
    if inside:
        kept = {(place, plain): fields for place, plain, fields in inside}
        encoded = _encode_inside(value, kept, "")
    else:
        encoded = msgspec.json.encode(value)
    return _behind(encoded, unknown)


def _encode_inside(
    value: msgspec.Struct, kept: Mapping[tuple[str, bytes], Unknown], place: str
) -> bytes:
    def encode(each: object, at: str) -> bytes:
        if not isinstance(each, msgspec.Struct):
            return msgspec.json.encode(each)
        unknown = kept.get((at, msgspec.json.encode(each)), ())
        return _behind(_encode_inside(each, kept, f"{at}."), unknown)

    parts: dict[str, msgspec.Raw] = {}
    for known in msgspec.structs.fields(value):
        held, at = getattr(value, known.name), f"{place}{known.encode_name}"
        if isinstance(held, list):
            raw = b"[" + b",".join([encode(each, at) for each in held]) + b"]"
            parts[known.encode_name] = msgspec.Raw(raw)
        elif held is not UNSET:
            parts[known.encode_name] = msgspec.Raw(encode(held, at))
    return msgspec.json.encode(parts)


def _behind(encoded: bytes, unknown: Unknown) -> bytes:
    if not unknown:
        return encoded
    rest = msgspec.json.encode({name: msgspec.Raw(raw) for name, raw in unknown})
    return encoded[:-1] + b"," + rest[1:]


def _replica(stored: _StoredReplica) -> Replica:
    return Replica(stored.id, stored.store)


def _decode(key: str, value: bytes, form: type[_Value]) -> _Value:
    try:
        version = msgspec.json.decode(value, type=_Versioned).version
        if version == VERSION:
            return msgspec.json.decode(value, type=form)
    except msgspec.MsgspecError as error:
        raise UnreadableValueError(key, str(error)) from None
    raise UnreadableValueError(key, f"its version is {version}, but this broker reads {VERSION}")
