"""A whole set as one value, for engines that can replace only one value by compare-and-swap.

It is JSON that contains the values of values.py, and keeps fields of later releases:

    version       1
    stateVersion  the version of the state, 0 without one: n << 32, and 32 random bits
    state         epoch, master, set, minInSync, history
    leader        id, incarnation, epoch of the lease's holder, or null
    beat          incremented by each renewal of the lease
    designated    the id of the only replica that an operator allows to lead; null: any may
    starts        by "<id>.<store>": how often that store was started

The random bits reveal a record that was restored from a backup: if its version reaches the same
number again, the bits differ.
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
    """The stored content of a set; immutable."""

    state: SetState | None = None
    version: int = 0
    leader: Leader | None = None
    beat: int = 0
    designated: int | None = None
    starts: Mapping[str, StartCount] = field(default_factory=dict)
    unknown: Unknown = ()

    def with_state(self, state: SetState) -> "SetRecord":
        """Return the record with another state, under the next version."""
        number = (self.version >> 32) + 1
        return replace(self, state=state, version=number << 32 | secrets.randbits(32))

    def grant_lease(self, leader: Leader) -> "SetRecord":
        """Return the record with a lease that was just granted or renewed."""
        return replace(self, leader=leader, beat=self.beat + 1)

    def designating(self, replica_id: int) -> "SetRecord":
        """Return the record with another designated replica."""
        return replace(self, designated=replica_id)

    def with_start(self, replica: Replica, start: StartCount) -> "SetRecord":
        """Return the record with the latest start of a store."""
        return replace(self, starts={**self.starts, start_name(replica): start})


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """The stored announcement of a running replica; each announcement has another ``beat``."""

    announcement: Announcement
    beat: int

    def is_of_same_process(self, other: "MemberRecord") -> bool:
        """Return whether one process announced both."""
        return self.announcement.incarnation == other.announcement.incarnation


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything stored of a set at one moment."""

    record: SetRecord
    tag: str | None
    """Identifies this version of the record; None: there is no record yet."""
    members: Mapping[int, MemberRecord] = field(default_factory=dict)


class _RecordFields(msgspec.Struct, rename="camel", kw_only=True):
    version: int = VERSION
    state_version: int
    state: msgspec.Raw = _NULL
    leader: msgspec.Raw = _NULL
    beat: int
    designated: int | None = None
    starts: dict[str, msgspec.Raw] = {}


class _MemberFields(msgspec.Struct, kw_only=True):
    version: int = VERSION
    beat: int
    member: msgspec.Raw


def start_name(replica: Replica) -> str:
    """Return the key under which the starts of a store are counted."""
    return f"{replica.id}.{replica.store}"


def encode_record(record: SetRecord) -> bytes:
    """Encode the record of a set."""
    state, leader = record.state, record.leader
    return with_unknown(
        _RecordFields(
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
    """Decode the record of a set; raise UnreadableValueError, which names the *place*."""
    try:
        stored = msgspec.json.decode(data, type=_RecordFields)
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
        unknown=unknown_fields(data, _RecordFields),
    )


def encode_member_record(member: MemberRecord) -> bytes:
    """Encode the stored announcement of a replica."""
    announced = msgspec.Raw(encode_member(member.announcement))
    return msgspec.json.encode(_MemberFields(beat=member.beat, member=announced))


def decode_member_record(place: str, data: bytes) -> MemberRecord:
    """Decode a stored announcement; raise UnreadableValueError, which names the *place*."""
    try:
        stored = msgspec.json.decode(data, type=_MemberFields)
    except msgspec.MsgspecError as error:
        raise UnreadableValueError(place, str(error)) from None
    _check_version(place, stored.version)
    return MemberRecord(decode_member(place, bytes(stored.member)), stored.beat)


def _check_version(place: str, version: int) -> None:
    if version != VERSION:
        reason = f"its version is {version}, but this broker reads {VERSION}"
        raise UnreadableValueError(place, reason)
