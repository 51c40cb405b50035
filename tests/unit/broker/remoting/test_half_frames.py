"""What unfinished frames may hold of memory."""

import struct

import pytest

from rockhopper.broker.access.access import Access
from rockhopper.broker.access.guard import Guard
from rockhopper.broker.access.peer import USERS
from rockhopper.broker.remoting import half_frames
from rockhopper.broker.remoting.half_frames import UNKNOWN_FRAME_BYTES_MAX, HalfFrames
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
        self.is_aborted = False

    def abort(self, reason: str) -> None:
        assert reason
        self.is_aborted = True


def guard(*, authenticates: bool = True, unsigned_codes: tuple[int, ...] = ()) -> Guard:
    return Guard(remote_admin=False, authenticates=authenticates, unsigned_codes=unsigned_codes)


BIG = UNKNOWN_FRAME_BYTES_MAX + 1


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
    assert (HalfFrames(guard()).find_problem(holder) is not None) == is_refused


@pytest.mark.parametrize(
    "access",
    [Access(remote_admin=False), guard(authenticates=False), guard(unsigned_codes=(310,)), None],
)
def test_where_no_user_is_required_frames_are_of_any_size(access: Access | None) -> None:
    assert HalfFrames(access).find_problem(Holder(UNSIGNED, BIG)) is None


def test_unknown_peers_that_hold_most_are_closed_beyond_their_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(half_frames, "UNKNOWN_BYTES_MAX_ALL", 1_000_000)
    large, small = Holder(SIGNED, 900_000), Holder(SIGNED, 200_000)
    known = Holder(SIGNED, 2_000_000, user="ann")
    frames = HalfFrames(guard())
    frames.count(half_frames.STEP_BYTES - 1, [small, large, known])
    assert not large.is_aborted
    frames.count(1, [small, large, known])
    assert [large.is_aborted, small.is_aborted, known.is_aborted] == [True, False, False]
    assert large.decoder.pending_bytes == 0


def test_all_peers_have_a_budget_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(half_frames, "BYTES_MAX_ALL", 1_000_000)
    large, small = Holder(UNSIGNED, 900_000), Holder(UNSIGNED, 200_000)
    HalfFrames(None).count(half_frames.STEP_BYTES, [large, small])
    assert [large.is_aborted, small.is_aborted] == [True, False]
