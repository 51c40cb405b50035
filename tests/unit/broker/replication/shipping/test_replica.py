"""Replicas that run: real connections, files of their own, one engine."""

import asyncio
import contextlib
import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from rockhopper.broker.replication.election import actions, wire
from rockhopper.broker.replication.election.messages import Hello, Refused
from rockhopper.broker.replication.election.replica_disk import ReplicaDisk
from rockhopper.broker.replication.election.replica_set import NOTHING_SEEN, Leader, Replica
from rockhopper.broker.replication.engines.engine import MemoryEngine
from rockhopper.broker.replication.shipping import (
    disk_actions,
    engine_actions,
    replica,
    set_presence,
)
from rockhopper.broker.replication.shipping.links import Links
from tests.support.hang import HANG_S
from tests.support.link_frames import Frames
from tests.support.replica_rig import QUICK, Member, ReplicaRig
from tests.support.turns import until


async def test_what_is_confirmed_is_on_every_replica(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path) as rig:
        master = await rig.master()
        await rig.complete(3)
        end = master.write(bytes(range(256)) * 50)
        await until(lambda: master.confirmed == end)
        assert all(member.log.data == master.log.data for member in rig.members)
        await until(lambda: all(member.confirmed == end for member in rig.members))


async def test_what_is_confirmed_is_noted_on_the_disk_of_every_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "ANNOUNCE_LOOK_S", 0.01)
    async with ReplicaRig(tmp_path) as rig:
        master = await rig.master()
        await rig.complete(3)
        end = master.write(b"x" * 5000)
        disks = [tmp_path / str(member.number) for member in rig.members]
        await until(lambda: all(ReplicaDisk(disk).replicated_offset == end for disk in disks))


async def test_another_leads_when_the_master_stops_and_it_follows_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with ReplicaRig(tmp_path) as rig:
        old = await rig.master()
        await rig.complete(3)
        end = old.write(b"before")
        await until(lambda: old.confirmed == end)
        await old.stop()
        new = await rig.master()
        assert new is not old
        old.log.data += b"never confirmed"
        end = new.write(b", and after")
        await until(lambda: new.confirmed == end)
        await old.start()
        await rig.complete(3)
        assert all(member.log.data == b"before, and after" for member in rig.members)
    assert ReplicaDisk(tmp_path / str(old.number)).cutting is None


async def test_a_follower_without_a_common_log_begins_anew(tmp_path: Path) -> None:
    rig = ReplicaRig(tmp_path, 2)
    first, second = rig.members
    await first.log.begin_at(8192)
    async with rig:
        master = await rig.master()
        assert master is first
        end = master.write(b"x" * 5000)
        await rig.complete(2)
        await until(lambda: second.confirmed == end)
        assert (second.log.start_offset, second.log.data) == (8192, master.log.data)
        await until(lambda: second.replica_disk is not None and second.replica_disk.is_clean)
    assert ReplicaDisk(tmp_path / "2").is_clean


async def test_who_was_away_longer_than_the_log_is_kept_begins_anew(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, other = await rig.pair()
        await other.stop()
        await rig.complete(1)
        end = master.write(b"x" * 9000)
        del master.log.data[:8192]
        master.log.start_offset = 8192
        await other.start()
        await rig.complete(2)
        await until(lambda: other.confirmed == end)
        assert (other.log.start_offset, other.log.data) == (8192, master.log.data)


async def test_who_is_outrun_by_retention_is_let_go_to_begin_anew(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, other = await rig.pair()
        assert master.replica
        master.log.data += b"x" * 9000
        del master.log.data[:8192]
        master.log.start_offset = 8192
        master.replica.wrote()
        await until(lambda: other.log.data == master.log.data)
        assert other.log.start_offset == 8192


async def test_a_cut_that_a_crash_has_stopped_is_done_at_the_start(tmp_path: Path) -> None:
    rig = ReplicaRig(tmp_path, 1)
    (only,) = rig.members
    only.log.data += b"kept, and not"
    ReplicaDisk(tmp_path / "1").note_cutting(4)
    async with rig:
        assert only.log.data == b"kept"
    assert ReplicaDisk(tmp_path / "1").cutting is None


async def test_a_replica_that_is_closed_leaves_no_peer_waiting(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 1) as rig:
        (member,) = rig.members
        master = await rig.master()
        assert member is master
        assert master.replica
        host, port = master.replica.ha_address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))

        def accepted() -> list[str]:
            names = [str(task.get_coro()) for task in asyncio.all_tasks()]
            return [name for name in names if "_accepted" in name]

        await until(lambda: len(accepted()) == 1)
        await master.stop()
        assert accepted() == []
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()


async def test_who_does_not_know_the_secret_gets_nothing(tmp_path: Path) -> None:
    rig = ReplicaRig(tmp_path, 2)
    first, second = rig.members
    second.facts = type(rig.facts)("DefaultCluster", "broker-a", 4096, b"another")
    async with rig:
        master = await rig.master()
        other = second if master is first else first
        master.write(b"secret")
        assert other.replica
        tried = asyncio.Event()
        other.replica.machine.following.not_opened = (  # type: ignore[method-assign]
            lambda *_, **__: tried.set()
        )
        await tried.wait()
        assert other.log.data == b""
        assert rig.memory.state is not None
        assert len(rig.memory.state.in_sync) == 1


async def test_without_a_secret_a_stranger_gets_nothing(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2, secret=b"") as rig:
        await rig.complete(2)
        master = await rig.master()
        assert master.replica
        hello = Hello(Replica(9, "stranger"), "i9", 0, True, 0, 0, ())
        link = await Links(rig.facts).greet(master.replica.ha_address, lambda: hello)
        said = Frames()
        await link.frames(said)
        link.close()
        (refused,) = said.found
        assert isinstance(refused, Refused)
        assert "announced" in refused.why


async def test_an_id_that_is_taken_is_told(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 1) as rig:
        master = await rig.master()
        assert master.replica
        hello = Hello(Replica(1, "another disk"), "i1", 0, True, 0, 0, ())
        link = await Links(rig.facts).greet(master.replica.ha_address, lambda: hello)
        said = Frames()
        await link.frames(said)
        link.close()
        assert said.found == [Refused(0, "two replicas have the id 1 (haReplicaId)")]


async def test_who_opens_its_store_anew_joins_when_it_can_take_the_log(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path) as rig:
        old = await rig.master()
        await rig.complete(3)
        await old.stop()
        new = await rig.master()
        await rig.complete(2)
        old.log.is_away = True
        await old.start()
        assert old.replica
        machine = old.replica.machine
        await until(lambda: machine.view is not None and machine.view.state is not None)
        end = new.write(b"without it")
        await until(lambda: new.confirmed == end)
        assert machine.following.link is None
        old.log.is_away = False
        await rig.complete(3)
        assert old.log.data == new.log.data


SMALL_FILES = ["note_voted_epoch", "note_epochs", "note_seen_state", "note_cutting", "note_cut"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("name", SMALL_FILES)
async def test_a_small_file_that_could_not_be_written_is_tried_until_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    monkeypatch.setattr(disk_actions, "DISK_PAUSE_S", 0)
    async with ReplicaRig(tmp_path) as rig:
        old = await rig.master()
        await rig.complete(3)
        end = old.write(b"before")
        await until(lambda: old.confirmed == end)
        await old.stop()
        old.log.data += b"never confirmed"
        write, failures = getattr(ReplicaDisk, name), iter(range(20))

        def fail(replica_disk: ReplicaDisk, *arguments: object) -> None:
            if next(failures, None) is not None:
                raise OSError(number, os.strerror(number))
            write(replica_disk, *arguments)

        monkeypatch.setattr(ReplicaDisk, name, fail)
        new = await rig.master()
        end = new.write(b"after")
        await old.start()
        await rig.complete(3)
        await until(lambda: all(member.confirmed == end for member in rig.members))
        assert all(member.log.data == new.log.data for member in rig.members)
        assert next(failures, None) is None
        for member in rig.members:
            assert member.replica
            assert member.replica.disk_problem == ""
            assert member.replica.machine.replica_state.may_lead


async def test_a_replica_whose_disk_fails_is_not_elected_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        _, other = await rig.pair()
        found = other.replica
        assert found
        full = True

        def fail(*_: object) -> None:
            if full:
                raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(disk_actions, "DISK_PAUSE_S", 0)
        monkeypatch.setattr(ReplicaDisk, "note_seen_state", fail)
        found.machine.actions.append(actions.NoteSeenState(NOTHING_SEEN))
        found.wrote()
        await until(lambda: "No space left" in found.disk_problem)
        assert not found.machine.replica_state.may_lead
        full = False
        await until(lambda: found.disk_problem == "")
        assert found.machine.replica_state.may_lead


def _with_copied_disk(rig: ReplicaRig, root: Path, original: Member) -> Member:
    """Another member of the rig, over a copy of the disk of one that runs."""
    copy = root / "copy"
    shutil.copytree(root / str(original.number), copy, ignore=shutil.ignore_patterns("*.tmp"))
    clone = Member(original.number, copy, rig.memory, rig.facts, original.clock)
    clone.log.data += original.log.data
    rig.members.append(clone)
    return clone


async def test_a_copied_disk_stays_out_while_the_original_runs(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, original = await rig.pair()
        clone = _with_copied_disk(rig, tmp_path, original)
        await clone.start()
        assert clone.replica
        await until(lambda: bool(clone.replica and clone.replica.second_because))
        assert clone.replica.view
        assert clone.replica.view.leader
        end = master.write(b"x" * 1000)
        await until(lambda: master.confirmed == end)
        assert original.log.data == master.log.data
        assert not clone.log.data
        await original.stop()
        del rig.memory.members[original.number]
        await until(lambda: clone.log.data == master.log.data)
        assert clone.replica.second_because == ""


@pytest.mark.parametrize("is_late", [False, True])
async def test_a_copied_disk_does_not_lead_in_the_place_of_the_original(
    tmp_path: Path, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "ANNOUNCE_LOOK_S", 0.01)
    monkeypatch.setattr(set_presence, "ANNOUNCE_INTERVAL_S", 0)
    async with ReplicaRig(tmp_path, 1) as rig:
        master = await rig.master()
        assert master.replica
        clone = _with_copied_disk(rig, tmp_path, master)
        if is_late:
            monkeypatch.setattr(set_presence, "ENDED_AFTER_MS", -1)
        else:
            end = master.write(b"x" * 1000)
            await until(lambda: master.confirmed == end)
            await until(lambda: rig.memory.members[master.number].log_end == end)
        await clone.start()
        assert clone.replica
        await until(lambda: bool(clone.replica and clone.replica.second_because))
        await master.replica.close(is_store_closed=True)
        master.replica = None
        await until(
            lambda: bool(clone.replica_disk and "copied" in clone.replica_disk.unclean_because)
        )
        await until(lambda: clone.number in rig.memory.members)
        assert not clone.replica.machine.replica_state.is_clean
        assert not clone.leads


async def test_a_moved_disk_leads_though_it_had_to_wait(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 1) as rig:
        master = await rig.master()
        moved = _with_copied_disk(rig, tmp_path, master)
        await moved.start()
        await until(lambda: bool(moved.replica and moved.replica.second_because))
        assert master.replica
        await master.replica.close(is_store_closed=True)
        master.replica = None
        await until(lambda: moved.leads)


async def test_who_has_closed_its_store_is_waited_for_by_nobody(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, original = await rig.pair()
        moved = _with_copied_disk(rig, tmp_path, original)
        assert original.replica
        await original.replica.close(is_store_closed=True)
        original.replica = None
        assert original.number not in rig.memory.members
        await moved.start()
        await until(lambda: moved.log.data == master.log.data)
        await rig.complete(2)
        assert moved.replica
        assert moved.replica.second_because == ""


async def test_who_stops_in_a_moment_withdraws_nothing_of_another_process(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        _, original = await rig.pair()
        later = replace(rig.memory.members[original.number], incarnation="another")
        rig.memory.announce(later, original.clock())
        assert original.replica
        await original.replica.close(is_store_closed=True)
        original.replica = None
        assert rig.memory.members[original.number] == later


@pytest.mark.parametrize("is_leader", [False, True])
async def test_an_engine_that_does_not_answer_delays_no_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_leader: bool
) -> None:
    monkeypatch.setattr(engine_actions, "FAREWELL_TIMEOUT_S", 0.01)
    asked: list[str] = []

    async def resign(_engine: MemoryEngine, _leader: Leader) -> None:
        asked.append("resign")
        await asyncio.get_running_loop().create_future()

    async def withdraw(_engine: MemoryEngine) -> None:
        asked.append("withdraw")
        await asyncio.get_running_loop().create_future()

    async with ReplicaRig(tmp_path, 2) as rig:
        stopped = (await rig.pair())[0 if is_leader else 1]
        monkeypatch.setattr(MemoryEngine, "resign", resign)
        monkeypatch.setattr(MemoryEngine, "withdraw", withdraw)
        assert stopped.replica
        async with asyncio.timeout(HANG_S):
            await stopped.replica.close(is_store_closed=True)
        stopped.replica = None
        assert asked == ["resign" if is_leader else "withdraw"]
        assert stopped.number in rig.memory.members
        monkeypatch.undo()


async def test_a_copied_disk_stays_out_while_the_original_leads(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master = await rig.master()
        await rig.complete(2)
        clone = _with_copied_disk(rig, tmp_path, master)
        del rig.memory.members[master.number]
        await clone.start()
        await until(lambda: bool(clone.replica and clone.replica.second_because))
        end = master.write(b"x" * 1000)
        await until(lambda: master.confirmed == end)
        assert clone.log.data == b""


async def test_who_finds_its_id_taken_takes_nothing_more(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, original = await rig.pair()
        announced = rig.memory.members[original.number]
        with structlog.testing.capture_logs() as logs:
            rig.memory.announce(replace(announced, incarnation="another"), original.clock())
            await until(lambda: bool(original.replica and original.replica.second_because))
            await rig.complete(1)
        assert "another process took over a follower's id" in [log["event"] for log in logs]
        end = master.write(b"x" * 1000)
        await until(lambda: master.confirmed == end)
        assert original.log.data == b""
        del rig.memory.members[original.number]
        await rig.complete(2)
        await until(lambda: original.log.data == master.log.data)


async def test_a_master_takes_no_follower_whose_id_another_process_has(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, original = await rig.pair()
        assert master.replica
        announced = rig.memory.members[original.number]
        hello = Hello(announced.replica, "a copy's", 1, True, 0, 0, ())
        links = Links(rig.facts)
        link = await links.greet(master.replica.ha_address, lambda: hello)
        said = Frames()
        with contextlib.suppress(wire.WireError):
            await link.frames(said)
        assert said.found == [
            Refused(0, f"another process is replica {original.number}: was its disk copied?")
        ]
        link.close()


async def test_a_master_that_finds_its_id_taken_leads_no_more(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 1) as rig:
        master = await rig.master()
        announced = rig.memory.members[master.number]
        rig.memory.announce(replace(announced, incarnation="another"), master.clock())
        await until(lambda: not master.leads)
        await until(lambda: rig.memory.leader is None)
        assert master.replica
        assert "another" in master.replica.second_because


async def test_nobody_dials_a_master_whose_store_is_gone(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, follower = await rig.pair()
        await follower.stop()
        await rig.complete(1)
        await master.stop()
        for each in rig.members:
            shutil.rmtree(tmp_path / str(each.number))
            rig.memory.members.pop(each.number, None)
            await each.start()
        await until(lambda: len(rig.memory.members) == 2)
        replica = follower.replica
        assert replica
        with structlog.testing.capture_logs() as logs:
            await until(lambda: bool(replica.notes))
            asked_ms = rig.members[0].clock()
            await until(lambda: rig.members[0].clock() > asked_ms + 4 * QUICK.reconnect_ms)
        assert replica.notes == [
            f"the master cannot be reached: replica {master.number}: its store is not the "
            "one that was elected"
        ]
        assert len([each for each in logs if each["event"] == "the master cannot be reached"]) <= 1


async def test_a_follower_whose_clock_is_wrong_says_so(tmp_path: Path) -> None:
    async with ReplicaRig(tmp_path, 2) as rig:
        master, follower = await rig.pair()
        assert follower.replica
        assert master.replica
        clock = follower.replica.clock
        await until(lambda: clock.ahead_ms is not None)
        assert clock.problem == ""
        follower.ahead_ms = -600_000
        await until(lambda: "behind the master's" in clock.problem)
        assert master.replica.clock.ahead_ms is None
