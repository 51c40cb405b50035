"""A set in a shared directory: the engine's contract, cut-off writes, and what cannot be used."""

import fcntl
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.consensus.record_engine import RecordEngine
from rockhopper.broker.replication.engines.consensus.set_record import SetRecord
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, Engine, EngineError
from rockhopper.broker.replication.engines.static import set_directory
from rockhopper.broker.replication.engines.static.set_directory import SLOT_SIZE_BYTES, SetDirectory
from tests.support.engine_contract import FIRST, LEADER_A, MEMBER, STATE, EngineContract
from tests.support.hang import HANG_S, PATIENT_MS


class DirectoryPair:
    """Two engines over one directory, and the clock that they share."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 1000.0
        self.one: Engine = self.engine(directory)
        self.two: Engine = self.engine(directory)

    def engine(self, directory: Path) -> RecordEngine:
        """Another one."""
        return RecordEngine(
            SetDirectory(directory, timeout_ms=PATIENT_MS, poll_ms=1),
            now_ms=lambda: self.now_ms,
            retry_ms=1,
        )

    async def lose_leases(self) -> None:
        """Let time pass for those who have seen them."""
        for engine in (self.one, self.two):
            await engine.read()
        self.now_ms += MEMBER_LEASE_MS


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[DirectoryPair]:
    found = DirectoryPair(tmp_path)
    yield found
    await found.one.close()
    await found.two.close()


class TestSetDirectory(EngineContract):
    """All of it."""


@pytest.mark.parametrize("is_newer_lost", [True, False])
async def test_a_write_that_was_cut_off_leaves_the_record_before(
    tmp_path: Path, is_newer_lost: bool
) -> None:
    directory = SetDirectory(tmp_path, timeout_ms=PATIENT_MS)
    first = SetRecord().with_state(STATE)
    second = first.grant_lease(LEADER_A)
    assert await directory.swap(first, None) == "1"
    assert await directory.swap(second, "1") == "2"
    position = 0 if is_newer_lost else SLOT_SIZE_BYTES
    with (tmp_path / "set").open("r+b") as file:
        file.seek(position + 20)
        file.write(b"\0" * 30)
    stored = await directory.load()
    assert (stored.record, stored.tag) == ((first, "1") if is_newer_lost else (second, "2"))
    assert await directory.swap(second, stored.tag) is not None
    assert (await directory.load()).record == second
    await directory.close()


async def test_the_first_write_of_all_may_be_cut_off_and_a_damaged_file_is_refused(
    tmp_path: Path,
) -> None:
    directory = SetDirectory(tmp_path, timeout_ms=PATIENT_MS)
    (tmp_path / "set").write_bytes(bytes(100))
    assert await directory.load() == await directory.load()
    assert (await directory.load()).tag is None
    (tmp_path / "set").write_bytes(b"x" * 2 * SLOT_SIZE_BYTES)
    with pytest.raises(EngineError, match="damaged"):
        await directory.load()
    with pytest.raises(EngineError, match="damaged"):
        await directory.swap(SetRecord(), None)
    await directory.close()


async def test_a_record_that_outgrows_its_slot_is_refused(tmp_path: Path) -> None:
    directory = SetDirectory(tmp_path, timeout_ms=PATIENT_MS)
    leader = replace(LEADER_A, incarnation="x" * SLOT_SIZE_BYTES)
    with pytest.raises(EngineError, match="has no room"):
        await directory.swap(SetRecord(leader=leader), None)
    await directory.close()


async def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    directory = SetDirectory(tmp_path / "gone", timeout_ms=PATIENT_MS)
    with pytest.raises(EngineError, match=r"cannot be used .* to create a set, run"):
        await directory.load()
    await directory.close()
    with pytest.raises(EngineError, match="closed"):
        await directory.load()


async def test_who_holds_the_lock_for_ever_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(set_directory, "ANSWER_MARGIN_S", HANG_S)
    directory = SetDirectory(tmp_path, timeout_ms=20)
    descriptor = os.open(tmp_path / "set", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(EngineError, match="locked"):
        await directory.load()
    engine = RecordEngine(directory, now_ms=lambda: 0.0)
    assert await engine.campaign(FIRST, LEADER_A) == (SwapOutcome.UNKNOWN, None)
    os.close(descriptor)
    assert (await engine.read()).state is None
    await engine.close()


async def test_a_damaged_announcement_is_none(pair: DirectoryPair, tmp_path: Path) -> None:
    await pair.one.announce(MEMBER)
    (tmp_path / "member.7").write_bytes(b"{}")
    assert (await pair.two.read()).members == {2: MEMBER}
