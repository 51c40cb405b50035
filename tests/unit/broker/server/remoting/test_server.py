"""The incomplete frames of a server: how much memory they may hold."""

import struct
from typing import cast

import pytest

from rockhopper.broker.server.listening.unfinished import UNKNOWN_BYTES_MAX
from rockhopper.broker.server.remoting.connection import RemotingConnection
from rockhopper.broker.server.remoting.server import HalfFrames
from rockhopper.broker.users.access import AccessRules
from rockhopper.broker.users.guard import Guard
from rockhopper.broker.users.peer import USERS
from rockhopper.protocol.frame import FrameDecoder

UNSIGNED = b'{"code":310}'
SIGNED = b'{"code":310,"extFields":{"AccessKey":"someone"}}'


def started(header: bytes, size: int) -> bytes:
    """The first *size* bytes of a frame of 16 MB."""
    head = struct.pack(">II", 16_000_000, len(header)) + header
    return head + bytes(size - len(head))


class Holder:
    def __init__(self, header: bytes, size: int, *, user: str = "") -> None:
        self.decoder = FrameDecoder()
        data = started(header, size)
        for start in range(0, size, 100_000):
            assert self.decoder.feed(data[start : start + 100_000]) == []
        self.attributes: dict[str, object] = {USERS: {user}} if user else {}

    @property
    def connection(self) -> RemotingConnection:
        """The same object under the type that the server expects."""
        return cast("RemotingConnection", self)


def guard(*, authenticates: bool = True, unsigned_codes: tuple[int, ...] = ()) -> Guard:
    return Guard(remote_admin=False, authenticates=authenticates, unsigned_codes=unsigned_codes)


BIG = UNKNOWN_BYTES_MAX + 1


@pytest.mark.parametrize(
    ("holder", "is_refused"),
    [
        (Holder(UNSIGNED, BIG), True),
        (Holder(UNSIGNED, BIG - 1), False),
        (Holder(SIGNED, BIG), False),
        (Holder(UNSIGNED, BIG, user="ann"), False),
    ],
)
def test_large_frames_are_for_who_names_a_user(holder: Holder, is_refused: bool) -> None:
    assert (HalfFrames(guard()).find_problem(holder.connection) is not None) == is_refused


@pytest.mark.parametrize(
    "access",
    [
        AccessRules(remote_admin=False),
        guard(authenticates=False),
        guard(unsigned_codes=(310,)),
        None,
    ],
)
def test_where_no_user_is_required_frames_are_of_any_size(access: AccessRules | None) -> None:
    assert HalfFrames(access).find_problem(Holder(UNSIGNED, BIG).connection) is None
