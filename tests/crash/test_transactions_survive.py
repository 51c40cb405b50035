"""Killed at any byte of any write, a broker delivers what was committed once, and nothing else."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.features import transactions_of
from tests.support.rot import overwrite
from tests.support.transaction_rig import TransactionRig, checks
from tests.support.transactions import COMMIT, HALF_TOPIC, OP_TOPIC, ROLLBACK, Half

Rigs = Callable[[Path], TransactionRig]
LOG_BYTES = 1 << 20


@pytest.fixture
def rigs() -> Iterator[Rigs]:
    made: list[TransactionRig] = []

    def open_store(root: Path, settings: dict[str, str] | None = None) -> TransactionRig:
        made.append(TransactionRig(root, settings))
        return made[-1]

    yield open_store
    for rig in made:
        rig.close()


def cut_log(root: Path, at: int, file_bytes: int = LOG_BYTES) -> None:
    """Leave of the log what was written below *at*."""
    for path in sorted((root / "commitlog").iterdir()):
        base = int(path.name)
        if base + file_bytes <= at:
            continue
        if base > at:
            path.unlink()
            continue
        overwrite(path, at - base, bytes(file_bytes - (at - base)))


def cuts(start: int, middle: int, end: int) -> list[int]:
    """Places to cut a write of two records at: around every border, and inside of both."""
    places = {start, start + 4, start + 60, middle - 1, middle, middle + 4, middle + 60, end - 1}
    return [*sorted(place for place in places if place >= start), end]


def assert_settled_once(rig: TransactionRig, half: Half, how: int, *, acknowledged: bool) -> None:
    """However far the end came: said again it holds, once, and nobody is asked any more."""
    before = rig.bodies()
    assert before in ([], [b"pay K1"])
    if acknowledged:
        assert before == ([b"pay K1"] if how == COMMIT else [])
        assert rig.open_count == 0
    if before:
        producer = rig.producer()
        rig.pass_time(60)
        assert checks(producer) == [], "a committed transaction is asked about"
        assert rig.open_count == 0
    for _ in range(2):
        assert rig.end(half, how) == 0
    assert rig.bodies() == ([b"pay K1"] if how == COMMIT else [])
    assert rig.open_count == 0


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("index", ["true", "false"])
def test_a_kill_in_the_midst_of_an_end_neither_loses_nor_repeats(
    tmp_path: Path, rigs: Rigs, how: int, index: str
) -> None:
    rig = TransactionRig(tmp_path / "store", {"messageIndexEnable": index})
    rig.send("K0")
    half = rig.send("K1")
    start = rig.broker.store.log.written_offset
    assert rig.end(half, how) == 0
    (op,) = rig.messages(OP_TOPIC)
    end = rig.broker.store.log.written_offset
    template = tmp_path / "template"
    shutil.copytree(rig.root, template)
    rig.close()
    for number, at in enumerate(cuts(start, op.commit_log_offset, end)):
        root = tmp_path / f"cut{number}"
        shutil.copytree(template, root)
        cut_log(root, at)
        after = TransactionRig(root, {"messageIndexEnable": index})
        assert rig.broker.config.store.index_enabled is (index == "true")
        # The other transaction is open all the time: leave it out of the count.
        other = next(h for h in transactions_of(after.broker).halves if h.offset == 0)
        transactions_of(after.broker).halves.remove(other)
        assert_settled_once(after, half, how, acknowledged=at == end)
        after.close()


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_a_second_kill_while_the_first_is_made_good_changes_nothing(
    tmp_path: Path, rigs: Rigs, how: int
) -> None:
    rig = rigs(tmp_path / "store")
    half = rig.send("K1")
    start = rig.broker.store.log.written_offset
    rig.end(half, how)
    (op,) = rig.messages(OP_TOPIC)
    shutil.copytree(rig.root, tmp_path / "first")
    cut_log(tmp_path / "first", op.commit_log_offset if how == COMMIT else start)
    again = rigs(tmp_path / "first")
    again.producer()
    again.pass_time(10)  # finds the final message, writes the op message
    if how == ROLLBACK:
        assert again.end(half, how) == 0
    again.crash(tmp_path / "second")
    assert_settled_once(again, half, how, acknowledged=True)


def fill_log_to(rig: TransactionRig, room_bytes: int) -> None:
    """Send plain messages until exactly *room_bytes* are left in the log's first file."""

    async def put(size: int) -> None:
        rig.broker.put("filler", bytes(size))

    rig.broker.create_topic("filler")
    store = rig.broker.store
    start = store.log.written_offset
    rig.loop.run(put(100))
    overhead = store.log.written_offset - start - 100
    rig.loop.run(put(LOG_BYTES - store.log.written_offset - overhead - room_bytes))
    assert LOG_BYTES - store.log.written_offset == room_bytes


def sizes_of_an_end(rig: TransactionRig) -> int:
    """The size of a final message."""
    start = rig.broker.store.log.written_offset
    rig.end(rig.send("K9", "elsewhere"), COMMIT)
    half_and_final = rig.messages(OP_TOPIC)[-1].commit_log_offset - start
    (final,) = rig.messages("elsewhere")
    assert final.commit_log_offset + final.size_bytes == start + half_and_final
    return final.size_bytes


def test_a_commit_across_two_log_files_survives_the_disk_filling_up_between_them(
    tmp_path: Path, rigs: Rigs, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = rigs(tmp_path / "store")
    rig.broker.create_topic("elsewhere")
    size_bytes = sizes_of_an_end(rig) - len("elsewhere") + len("orders")
    half = rig.send("K1")
    fill_log_to(rig, size_bytes + 8 + 3)
    log_files = rig.broker.store.opened.commit_log
    with monkeypatch.context() as full:

        def no_room(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        ahead, log_files.next_file.made = log_files.next_file.made, None
        full.setattr(type(log_files._files), "create_next", no_room)
        assert rig.end(half, COMMIT) == 0, "the final message is in the log"
        assert rig.bodies() == [b"pay K1"]
        assert rig.open_count == 1, "its op message is not"
        assert rig.end(half, COMMIT) == 0
        shutil.copytree(rig.root, tmp_path / "killed")
    log_files.next_file.made = ahead
    producer = rig.producer()
    rig.pass_time(2)
    assert rig.open_count == 0
    assert checks(producer) == []
    assert rig.bodies() == [b"pay K1"]
    for path in sorted((tmp_path / "killed" / "commitlog").iterdir())[1:]:
        path.unlink()
    assert_settled_once(rigs(tmp_path / "killed"), half, COMMIT, acknowledged=False)


def test_a_store_that_takes_nothing_leaves_the_transaction_open(tmp_path: Path, rigs: Rigs) -> None:
    rig = rigs(tmp_path / "store")
    half = rig.send("K1")
    rig.broker.store.retention.space.full_reason = "the disk is full"
    assert rig.end(half, COMMIT) == 14
    assert rig.end(half, ROLLBACK) == 14
    producer = rig.producer()
    rig.pass_time(6)
    assert checks(producer) == [half.offset]
    assert (rig.open_count, rig.bodies()) == (1, [])
    rig.broker.store.retention.space.full_reason = None
    assert rig.end(half, COMMIT, fromTransactionCheck="true") == 0
    assert rig.bodies() == [b"pay K1"]


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_a_write_that_fails_leaves_the_transaction_open(
    tmp_path: Path, rigs: Rigs, monkeypatch: pytest.MonkeyPatch, how: int
) -> None:
    rig = rigs(tmp_path / "store")
    half = rig.send("K1")
    pwrite = os.pwrite
    failures = itertools.count()

    def fail_once(descriptor: int, data: bytes, offset: int) -> int:
        if next(failures) == 0:
            raise OSError(errno.EIO, "input/output error")
        return pwrite(descriptor, data, offset)

    with monkeypatch.context() as failing:
        failing.setattr(os, "pwrite", fail_once)
        assert rig.end(half, how) != 0
    assert (rig.open_count, rig.bodies()) == (1, [])
    rig.crash(tmp_path / "killed")
    assert (rig.open_count, rig.bodies()) == (1, [])
    assert_settled_once(rig, half, how, acknowledged=False)


def test_a_power_cut_that_takes_the_final_message_opens_the_transaction_again(
    tmp_path: Path, rigs: Rigs
) -> None:
    rig = rigs(tmp_path / "store")
    half = rig.send("K1")
    rig.end(half, COMMIT)
    (final,) = rig.messages()
    root = tmp_path / "cut"
    shutil.copytree(rig.root, root)
    overwrite((root / "commitlog" / f"{0:020d}"), final.commit_log_offset, bytes(final.size_bytes))
    shutil.rmtree(root / "consumequeue")
    after = rigs(root)
    assert after.open_count == 1
    producer = after.producer()
    after.pass_time(10)
    assert checks(producer) == [half.offset]
    assert after.end(half, COMMIT, fromTransactionCheck="true") == 0
    assert after.bodies()[-1:] == [b"pay K1"]


def test_offsets_are_noted_only_for_what_the_disk_holds(tmp_path: Path, rigs: Rigs) -> None:
    rig = rigs(tmp_path / "store")

    def noted() -> tuple[int | None, int | None]:
        offsets = rig.broker.tables.offsets
        group = "CID_RMQ_SYS_TRANS"
        return offsets.get(HALF_TOPIC, group, 0), offsets.get(OP_TOPIC, group, 0)

    first, second = rig.send("K1"), rig.send("K2")
    rig.end(second, COMMIT)
    rig.flush()
    rig.pass_time(5)
    assert noted() in ((None, None), (0, 0)), "the first transaction is open"
    rig.end(first, COMMIT)
    rig.pass_time(5)
    assert noted() in ((None, None), (0, 0)), "the disk may not hold its end"
    rig.flush()
    rig.pass_time(5)
    assert noted() == (2, 2)
    third = rig.send("K3")
    rig.end(rig.send("K4"), ROLLBACK)
    rig.flush()
    rig.pass_time(5)
    assert noted() == (2, 2)
    rig.crash(tmp_path / "killed")
    assert [half.offset for half in transactions_of(rig.broker).halves] == [third.offset]
