"""A whole set as one value, for engines that can only replace one thing by compare-and-swap.

As JSON, with those of values.py within it, and fields of later releases kept:

    version       1
    stateVersion  the version of the state, 0 without one: n << 32, and 32 random bits
    state         epoch, master, set, minInSync, history
    leader        id, incarnation, epoch of whoever has the lease, or null
    beat          counted up by each renewal of the lease
    designated    the id of the only replica that an operator lets lead; null: any may
    starts        by "<id>.<store>": how often that store was started

The random bits are for a record that was restored from a backup: a version that is counted up to
the same number a second time is another one.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SetState,
)
from rockhopper.broker.replication.engines.consensus.values import (
    VERSION,
    StartCount,
    Unknown,
    UnreadableValueError,
    decode_leader,
    decode_member,
    decode_start,
    decode_state,
    encode_leader,
    encode_member,
    encode_start,
    encode_state,
    unknown_fields,
    with_unknown,
)

_NULL = msgspec.Raw(b"null")


@dataclass(frozen=True, slots=True)
class SetRecord:
    """What is stored of a set; changed by replacing it."""

    state: SetState | None = None
    version: int = 0
    leader: Leader | None = None
    beat: int = 0
    designated: int | None = None
    starts: Mapping[str, StartCount] = field(default_factory=dict)
    unknown: Unknown = ()

    def with_state(self, state: SetState) -> "SetRecord":
        """The record with another state, under the next version."""
        number = (self.version >> 32) + 1
        return replace(self, state=state, version=number << 32 | secrets.randbits(32))

    def led_by(self, leader: Leader) -> "SetRecord":
        """The record with a lease that was given or renewed just now."""
        return replace(self, leader=leader, beat=self.beat + 1)

    def designating(self, replica_id: int) -> "SetRecord":
        """The record with another replica that may lead."""
        return replace(self, designated=replica_id)

    def with_start(self, replica: Replica, start: StartCount) -> "SetRecord":
        """The record with the latest start of a store."""
        return replace(self, starts={**self.starts, start_name(replica): start})


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """What is stored of a running replica; ``beat`` is another each time it is announced."""

    announcement: Announcement
    beat: int

    def is_of_same_process(self, other: "MemberRecord") -> bool:
        """Whether both were told by one process."""
        return self.announcement.incarnation == other.announcement.incarnation


@dataclass(frozen=True, slots=True)
class Stored:
    """All that is stored of a set at one moment."""

    record: SetRecord
    tag: str | None
    """What tells this record from every other one; None: there is none yet."""
    members: Mapping[int, MemberRecord] = field(default_factory=dict)


class _Record(msgspec.Struct, rename="camel", kw_only=True):
    version: int = VERSION
    state_version: int
    state: msgspec.Raw = _NULL
    leader: msgspec.Raw = _NULL
    beat: int
    designated: int | None = None
    starts: dict[str, msgspec.Raw] = {}


class _Member(msgspec.Struct, kw_only=True):
    version: int = VERSION
    beat: int
    member: msgspec.Raw


def start_name(replica: Replica) -> str:
    """Under which name the starts of a store are counted."""
    return f"{replica.id}.{replica.store}"


def encode_record(record: SetRecord) -> bytes:
    """Encode a set."""
    state, leader = record.state, record.leader
    return with_unknown(
        _Record(
            state_version=record.version,
            state=msgspec.Raw(encode_state(state)) if state else _NULL,
            leader=msgspec.Raw(encode_leader(leader)) if leader else _NULL,
            beat=record.beat,
            designated=record.designated,
            starts={key: msgspec.Raw(encode_start(each)) for key, each in record.starts.items()},
        ),
        record.unknown,
    )


def decode_record(place: str, data: bytes) -> SetRecord:
    """Decode a set; raises UnreadableValueError, which names the *place*."""
    try:
        stored = msgspec.json.decode(data, type=_Record)
    except msgspec.MsgspecError as error:
        raise UnreadableValueError(place, str(error)) from None
    _check_version(place, stored.version)
    has_state, has_leader = bytes(stored.state) != b"null", bytes(stored.leader) != b"null"
    return SetRecord(
        state=decode_state(place, bytes(stored.state)) if has_state else None,
        version=stored.state_version,
        leader=decode_leader(place, bytes(stored.leader)) if has_leader else None,
        beat=stored.beat,
        designated=stored.designated,
        starts={key: decode_start(place, bytes(each)) for key, each in stored.starts.items()},
        unknown=unknown_fields(data, _Record),
    )


def encode_member_record(member: MemberRecord) -> bytes:
    """Encode what is stored of a running replica."""
    announced = msgspec.Raw(encode_member(member.announcement))
    return msgspec.json.encode(_Member(beat=member.beat, member=announced))


def decode_member_record(place: str, data: bytes) -> MemberRecord:
    """Decode it; raises UnreadableValueError, which names the *place*."""
    try:
        stored = msgspec.json.decode(data, type=_Member)
    except msgspec.MsgspecError as error:
        raise UnreadableValueError(place, str(error)) from None
    _check_version(place, stored.version)
    return MemberRecord(decode_member(place, bytes(stored.member)), stored.beat)


def _check_version(place: str, version: int) -> None:
    if version != VERSION:
        reason = f"its version is {version}, this broker reads {VERSION}"
        raise UnreadableValueError(place, reason)
