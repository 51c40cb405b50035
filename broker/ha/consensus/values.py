"""What is stored of a set, whichever engine keeps it: values of JSON with a version.

    name                  lease      value
    state                 none       epoch, master, set, minInSync, history, trail
    leader                leader's   id, incarnation, epoch
    members/<id>          15 s       store, incarnation, address, haAddress, lastEpoch, logEnd, ...
    starts/<id>.<store>   none       count, and who counted

Fields that are not known are passed over; a larger version is refused.
"""

from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from rockhopper.broker.ha.engine import EngineError
from rockhopper.broker.ha.replica_set import Announcement, Leader, Replica, SetState, Sight, Term

VERSION = 1

_Value = TypeVar("_Value", bound="_Versioned")


class UnreadableValueError(EngineError):
    """A value that somebody else wrote, or a later version of this broker."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key} in the engine cannot be read: {reason}")
        self.key = key


class _Replica(msgspec.Struct):
    id: int
    store: str


class _Term(msgspec.Struct):
    epoch: int
    master: _Replica
    why: str


class _Versioned(msgspec.Struct, rename="camel", kw_only=True):
    version: int = VERSION


class _Sight(msgspec.Struct, frozen=True):
    changes: int = 0
    mark: int = 0


class _State(_Versioned, kw_only=True):
    epoch: int
    master: _Replica
    set: list[_Replica]
    min_in_sync: int
    history: list[_Term] = []
    trail: list[_Sight] = []


class _Leader(_Versioned, kw_only=True):
    id: int
    incarnation: str
    epoch: int


class _Member(_Versioned, kw_only=True):
    id: int
    store: str
    incarnation: str
    address: str
    ha_address: str
    last_epoch: int
    log_end: int
    clean: bool
    priority: int = 0
    sight: _Sight = _Sight()
    misses_master: bool = False
    settings: dict[str, str] | UnsetType = UNSET
    own_address: str | UnsetType = UNSET


class StartCount(_Versioned, kw_only=True):
    """How often a store was started; ``counted_by`` tells a request that is made again."""

    count: int
    counted_by: str


def encode_state(state: SetState) -> bytes:
    """Encode the value of ``state``."""
    return msgspec.json.encode(
        _State(
            epoch=state.epoch,
            master=_Replica(*state.master),
            set=[_Replica(*each) for each in sorted(state.in_sync)],
            min_in_sync=state.min_in_sync,
            history=[_Term(each.epoch, _Replica(*each.master), each.why) for each in state.history],
            trail=[_Sight(*each) for each in state.trail],
        )
    )


def decode_state(key: str, value: bytes) -> SetState:
    """Decode the value of ``state``; raises UnreadableValueError."""
    stored = _decoded(key, value, _State)
    return SetState(
        stored.epoch,
        _replica(stored.master),
        frozenset(_replica(each) for each in stored.set),
        stored.min_in_sync,
        tuple(Term(each.epoch, _replica(each.master), each.why) for each in stored.history),
        tuple(Sight(each.changes, each.mark) for each in stored.trail),
    )


def encode_leader(leader: Leader) -> bytes:
    """Encode the value of ``leader``."""
    return msgspec.json.encode(
        _Leader(id=leader.id, incarnation=leader.incarnation, epoch=leader.epoch)
    )


def decode_leader(key: str, value: bytes) -> Leader:
    """Decode the value of ``leader``; raises UnreadableValueError."""
    stored = _decoded(key, value, _Leader)
    return Leader(stored.id, stored.incarnation, stored.epoch)


def encode_member(member: Announcement) -> bytes:
    """Encode a value under ``members/``."""
    return msgspec.json.encode(
        _Member(
            id=member.replica.id,
            store=member.replica.store,
            incarnation=member.incarnation,
            address=member.address,
            ha_address=member.ha_address,
            last_epoch=member.last_epoch,
            log_end=member.log_end,
            clean=member.is_clean,
            priority=member.priority,
            sight=_Sight(*member.sight),
            misses_master=member.misses_master,
            settings=dict(member.settings) or UNSET,
            own_address=member.own_address or UNSET,
        )
    )


def decode_member(key: str, value: bytes) -> Announcement:
    """Decode a value under ``members/``; raises UnreadableValueError."""
    stored = _decoded(key, value, _Member)
    return Announcement(
        Replica(stored.id, stored.store),
        stored.incarnation,
        stored.address,
        stored.ha_address,
        stored.last_epoch,
        stored.log_end,
        stored.clean,
        stored.priority,
        Sight(stored.sight.changes, stored.sight.mark),
        stored.misses_master,
        tuple(stored.settings.items()) if stored.settings else (),
        stored.own_address or "",
    )


def encode_start(start: StartCount) -> bytes:
    """Encode a value under ``starts/``."""
    return msgspec.json.encode(start)


def decode_start(key: str, value: bytes) -> StartCount:
    """Decode a value under ``starts/``; raises UnreadableValueError."""
    return _decoded(key, value, StartCount)


def _replica(stored: _Replica) -> Replica:
    return Replica(stored.id, stored.store)


def _decoded(key: str, value: bytes, form: type[_Value]) -> _Value:
    try:
        version = msgspec.json.decode(value, type=_Versioned).version
        if version == VERSION:
            return msgspec.json.decode(value, type=form)
    except msgspec.MsgspecError as error:
        raise UnreadableValueError(key, str(error)) from None
    raise UnreadableValueError(key, f"its version is {version}, this broker reads {VERSION}")
