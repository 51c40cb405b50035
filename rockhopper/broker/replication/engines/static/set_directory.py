"""The record of a set in a directory that all its replicas have mounted.

    set             two slots of 65,536 bytes, each with a record and a padding of zeros
    member.<id>     the announcement of a running replica, replaced whole

A record is ``{"serial": n, "record": …}`` (set_record.py) as a line with its CRC-32
(checked_line.py); the larger serial counts. A new record goes into the other slot, so an
interrupted write leaves the previous one intact. A process holds an flock on ``set`` while it reads
or writes the file. Over NFS this is a lock at the server, and makes the client drop its cache of
the file.

    slots (serial 4, serial 5)   a crash while serial 6 is written into the first slot
    slots (damaged,  serial 5)   serial 5 still counts; the next write reuses the first slot

All work runs in one thread, in order, because a network file system may block for any time; the
event loop waits for a limited time.
"""

import asyncio
import contextlib
import fcntl
import functools
import os
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from rockhopper.broker.replication.engines.consensus.connections import UnavailableError
from rockhopper.broker.replication.engines.consensus.set_record import (
    MemberRecord,
    SetRecord,
    Stored,
    decode_member_record,
    decode_record,
    encode_member_record,
    encode_record,
)
from rockhopper.broker.replication.engines.consensus.values import UnreadableValueError
from rockhopper.broker.replication.engines.engine import EngineError
from rockhopper.broker.store.files import checked_line, disk

SLOT_SIZE_BYTES = 64 << 10
LOCK_PAUSE_S = 0.01
# A hanging file system gets this much more time than a lock.
ANSWER_MARGIN_S = 1.0
_MEMBER = "member."

_Result = TypeVar("_Result")


class SetDirectory:
    """The RecordKeeper over a directory.

    Brokers never create the directory: if it is missing, it is not mounted.
    """

    def __init__(self, directory: Path, *, timeout_ms: int = 1000, poll_ms: int = 200) -> None:
        """A request may take *timeout_ms*; a watch polls every *poll_ms*."""
        self.name = str(directory / "set")
        self._directory = directory
        self._timeout_s = timeout_ms / 1000
        self._poll_s = poll_ms / 1000
        self._thread = ThreadPoolExecutor(1, "set-directory")
        self._is_closed = False

    async def load(self) -> Stored:
        """See RecordKeeper."""
        return await self._run_in_thread(self.load_now)

    async def swap(self, record: SetRecord, tag: str | None) -> str | None:
        """See RecordKeeper."""
        return await self._run_in_thread(functools.partial(self.swap_now, record, tag))

    async def store_member(self, member: MemberRecord) -> None:
        """See RecordKeeper."""
        await self._run_in_thread(functools.partial(self._store_member, member))

    async def remove_member(self, member: MemberRecord) -> None:
        """See RecordKeeper."""
        await self._run_in_thread(functools.partial(self._remove_member, member))

    async def snapshots(self) -> AsyncGenerator[Stored, None]:
        """See RecordKeeper."""
        while True:
            yield await self.load()
            await asyncio.sleep(self._poll_s)

    async def close(self) -> None:
        """See RecordKeeper."""
        self._is_closed = True
        self._thread.shutdown(wait=False)

    def load_now(self) -> Stored:
        """Return the stored content; blocks. Raises EngineError."""
        with self._open(fcntl.LOCK_SH) as descriptor:
            serial, record = self._latest(descriptor)
        return Stored(record, str(serial) if serial else None, self._members())

    def swap_now(self, record: SetRecord, tag: str | None) -> str | None:
        """Replace the record as ``swap``; blocks. Raises EngineError."""
        with self._open(fcntl.LOCK_EX) as descriptor:
            serial, _ = self._latest(descriptor)
            if serial != int(tag or 0):
                return None
            document = {"serial": serial + 1, "record": msgspec.json.decode(encode_record(record))}
            data = checked_line.encode(document)
            if len(data) > SLOT_SIZE_BYTES:
                raise EngineError(f"{self.name}: a record of {len(data):,} bytes has no room")
            position = (serial + 1) % 2 * SLOT_SIZE_BYTES
            disk.write_fully(descriptor, position, data.ljust(SLOT_SIZE_BYTES, b"\0"))
            disk.sync_file(descriptor)
        return str(serial + 1)

    def _store_member(self, member: MemberRecord) -> None:
        line = checked_line.encode(msgspec.json.decode(encode_member_record(member)))
        with self._open(fcntl.LOCK_EX):
            disk.write_atomically(self._member_path(member), line)

    def _remove_member(self, member: MemberRecord) -> None:
        with self._open(fcntl.LOCK_EX):
            held = self._members().get(member.announcement.replica.id)
            if held and held.is_of_same_process(member):
                disk.remove_files([self._member_path(member)])

    def _member_path(self, member: MemberRecord) -> Path:
        return self._directory / f"{_MEMBER}{member.announcement.replica.id}"

    def _latest(self, descriptor: int) -> tuple[int, SetRecord]:
        """Return the current record and its serial; 0 and an empty record at first."""
        data = os.pread(descriptor, 2 * SLOT_SIZE_BYTES, 0)
        if not data:
            return 0, SetRecord()
        slots = [data[:SLOT_SIZE_BYTES], data[SLOT_SIZE_BYTES:]]
        found = [(serial, line) for serial, line in map(_slot, slots) if serial]
        if not found:
            if not slots[0].strip(b"\0"):
                return 0, SetRecord()  # The very first write was interrupted.
            reason = "it is damaged; restore a copy, or see docs/replication.md"
            raise UnreadableValueError(self.name, reason)
        serial, line = max(found)
        return serial, decode_record(self.name, line)

    def _members(self) -> dict[int, MemberRecord]:
        members = {}
        for path in self._directory.glob(f"{_MEMBER}*[0-9]"):
            # The file is being replaced or damaged; the replica announces itself again soon.
            with contextlib.suppress(OSError, ValueError, EngineError):
                document = checked_line.decode(path.read_bytes())
                member = decode_member_record(str(path), msgspec.json.encode(document))
                members[member.announcement.replica.id] = member
        return members

    @contextlib.contextmanager
    def _open(self, kind: int) -> Iterator[int]:
        """Open the file of the set, locked with that *kind* of lock until the block ends."""
        path = self._directory / "set"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(descriptor, kind)
            yield descriptor
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int, kind: int) -> None:
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= until_s:
                    reason = f"another process has locked {self.name} for {self._timeout_s:g} s"
                    raise UnavailableError(reason, may_be_done=False) from None
            time.sleep(LOCK_PAUSE_S)

    async def _run_in_thread(self, function: Callable[[], _Result]) -> _Result:
        if self._is_closed:
            raise UnavailableError("the engine is closed", may_be_done=False)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s + ANSWER_MARGIN_S):
                return await loop.run_in_executor(self._thread, function)
        except TimeoutError:
            reason = f"{self.name}: no answer within {self._timeout_s + ANSWER_MARGIN_S:g} s"
            raise UnavailableError(reason, may_be_done=True) from None
        except OSError as error:
            reason = (
                f"{self.name} cannot be used ({error.strerror}): mount the directory that all "
                "replicas share; to create a set, run rockhopper ha elect"
            )
            raise UnavailableError(reason, may_be_done=True) from None


def _slot(data: bytes) -> tuple[int, bytes]:
    """Return the serial and the record of a slot; 0 if the slot has no valid record."""
    try:
        document = checked_line.decode(data.rstrip(b"\0"))
        return int(document["serial"]), msgspec.json.encode(document["record"])
    except (ValueError, KeyError, TypeError):
        return 0, b""
