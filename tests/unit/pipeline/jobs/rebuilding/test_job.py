"""Queues and index from segments alone: the same bytes as a broker that dispatches them."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.rebuilding.job import rebuild
from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from rockhopper.protocol.store.queue_layout import (
    BLANK_CONSUME_QUEUE_UNIT,
    BLANK_UNIT_SIZE_FIELD,
    CONSUME_QUEUE_UNIT,
)
from tests.support import apache_golden, golden_stores, open_stores
from tests.support.derived_stores import (
    APACHE_GEOMETRY,
    QUEUE_SIZES,
    audited,
    index_files,
    queue_files,
    rebuilt,
    write_store,
)
from tests.support.peers import Clock
from tests.support.rot import overwrite
from tests.support.written_logs import WrittenLog


@pytest.mark.parametrize("split_size", [None, 4096])
@pytest.mark.parametrize("name", ["plain", "batch", "killed"])
def test_a_store_of_apache_is_rebuilt_byte_by_byte(
    name: str, split_size: int | None, tmp_path: Path
) -> None:
    store = apache_golden.unpack(name, tmp_path / "apache").path
    output = tmp_path / "output"

    result = rebuilt(store, output, split_size=split_size, **APACHE_GEOMETRY)

    assert result.is_good
    assert result.has_tag_keys  # as RocketMQ 5.5 has them
    assert queue_files(output) == queue_files(store)
    assert index_files(output) == index_files(store)
    assert sorted(path.name for path in output.iterdir() if path.name.startswith("scratch")) == []


@pytest.mark.parametrize(
    ("name", "slots", "entries"),
    [
        ("basic30", 16, 40),
        ("mix", 16, 4000),
        ("crcprop", 16, 40),
        ("prepared_rollback", 16, 40),
        ("eof_exact8", 16, 40),
    ],
)
def test_what_the_reference_wrote(name: str, slots: int, entries: int, tmp_path: Path) -> None:
    store = golden_stores.copy_golden_store(name, tmp_path / "store")
    output = tmp_path / "output"

    rebuilt(store, output, index_slots=slots, index_entries=entries)

    assert queue_files(output) == queue_files(store)
    assert index_files(output) == index_files(store)


def test_extension_addresses_become_the_tags_codes_they_stand_for(tmp_path: Path) -> None:
    store = apache_golden.unpack("extended", tmp_path).path

    rebuilt(store, tmp_path / "output", **APACHE_GEOMETRY)
    shutil.rmtree(store / "consumequeue")
    shutil.rmtree(store / "consumequeue_ext")
    shutil.move(tmp_path / "output" / "consumequeue", store)

    assert audited(store, **APACHE_GEOMETRY).is_good


@pytest.mark.parametrize("split_size", [None, 4096])
def test_what_our_broker_wrote(split_size: int | None, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    output = tmp_path / "output"

    result = rebuilt(store, output, split_size=split_size)

    assert result.record_count == 200
    assert result.is_good
    assert queue_files(output) == queue_files(store)
    assert index_files(output) == index_files(store)
    assert len(index_files(store)) > 1


def test_segments_that_do_not_start_at_0_are_dispatched_as_by_a_broker(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 300)
    for path in sorted((store / "commitlog").iterdir())[:3]:
        path.unlink()
    fresh = tmp_path / "fresh"
    shutil.copytree(store / "commitlog", fresh / "commitlog")
    open_stores.close(open_stores.open_store(fresh, Clock()))

    rebuilt(fresh, tmp_path / "output")

    assert queue_files(tmp_path / "output") == queue_files(fresh)
    assert index_files(tmp_path / "output") == index_files(fresh)
    first = next(iter(queue_files(fresh).values()))
    assert first.startswith(BLANK_CONSUME_QUEUE_UNIT)


def test_batch_topics_and_delayed_messages_of_our_broker(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_stores.open_store(root, Clock(), batch_topics={"Batches"})
    for number in range(50):
        open_stores.put(store, b"b", "Batches", properties=f"TAGS\x01t{number}\x02")
        open_stores.put(store, b"d", "SCHEDULE_TOPIC_XXXX", 2, "DELAY\x013\x02TAGS\x01t\x02")
    open_stores.close(store)

    rebuilt(root, tmp_path / "output", batch_topics=["Batches"], delay_levels="1s")

    assert queue_files(tmp_path / "output") == queue_files(root)
    assert any(name.startswith("batchconsumequeue") for name in queue_files(root))
    assert audited(root, delay_levels="1s").is_good
    assert set(audited(root).counts) == {"unit wrong"}


def test_a_broker_opens_a_store_that_was_rebuilt_in_place(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    before = queue_files(store)
    shutil.rmtree(store / "index")
    for path in (store / "consumequeue").rglob("0*"):
        if path.is_file():
            overwrite(path, 0, bytes(200))

    result = rebuilt(store, None, in_place=True)

    assert queue_files(store) == before
    assert result.old_files is not None
    assert (Path(result.old_files) / "consumequeue").is_dir()
    opened = open_stores.open_store(store)
    try:
        assert len(open_stores.bodies(opened, "Topic1", 1)) == 86
    finally:
        open_stores.close(opened)
    assert audited(store).is_good


def test_a_queue_whose_messages_have_expired_keeps_its_next_offset(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = open_stores.open_store(root, Clock())
    for _ in range(7):
        open_stores.put(store, topic="Old")
    for _ in range(60):
        open_stores.put(store, bytes(100))
    open_stores.close(store)
    sorted((root / "commitlog").iterdir())[0].unlink()

    result = rebuilt(root, None, in_place=True)

    assert result.kept_queue_count == 1
    opened = open_stores.open_store(root)
    try:
        assert open_stores.put(opened, topic="Old").queue_offset == 7
    finally:
        open_stores.close(opened)
    assert rebuilt(root, tmp_path / "output").queue_count == 2


@pytest.mark.parametrize(("number", "split_size"), [(40, None), (0, None), (57, 4096)])
def test_a_record_whose_head_was_damaged_does_not_spoil_its_queue(
    number: int, split_size: int | None, tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path / "store", file_size_bytes=8192)
    for offset in range(100):
        log.add(topic="T", queue_id=0, queue_offset=offset)
    log.write(log.offsets[number] + 20, (1 << 40).to_bytes(8, "big"))

    result = rebuilt(log.root, tmp_path / "output", split_size=split_size)

    files = queue_files(tmp_path / "output")
    assert list(files) == [f"consumequeue/T/0/{0:020d}"]
    units = [
        position
        for position, size, _ in CONSUME_QUEUE_UNIT.iter_unpack(next(iter(files.values())))
        if size and size != BLANK_UNIT_SIZE_FIELD
    ]
    assert len(units) == (99 if number == 0 else 100)
    assert set(log.offsets) - {log.offsets[number]} <= set(units)
    assert not result.is_good
    assert any("cannot have" in note.reason for note in result.notes)


def test_lost_messages_get_units_that_point_into_the_hole(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    segment = sorted((store / "commitlog").iterdir())[1]
    overwrite(segment, 1000, bytes(800))

    result = rebuilt(store, None, in_place=True)

    assert not result.is_good
    assert [damage.path for damage in result.damages] == [str(segment)]
    assert sum(note.message_count for note in result.notes) == 200 - result.record_count
    report = audited(store)
    assert set(report.counts) == {"log damage", "message lost"}
    opened = open_stores.open_store(store)
    try:
        found = [
            body
            for topic in ("Topic0", "Topic1", "Topic2")
            for queue in (0, 1)
            for body in open_stores.bodies(opened, topic, queue)
        ]
    finally:
        open_stores.close(opened)
    assert len(found) == result.record_count


def test_a_running_broker_keeps_its_queues(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 5)
    hold = (
        "import fcntl,sys; f=open(sys.argv[1],'r+b'); fcntl.lockf(f,fcntl.LOCK_EX,1,0);"
        "print('held',flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(store / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(PipelineError, match="stop it first"):
            rebuilt(store, None, in_place=True)
        assert holder.stdin is not None
        holder.stdin.close()


def test_the_lock_is_held_while_files_are_made(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 5)
    asked: list[bool] = []

    def run(tasks, work, label):  # type: ignore[no-untyped-def]
        answer = subprocess.run(
            [
                sys.executable,
                "-c",
                "import fcntl,sys; f=open(sys.argv[1],'r+b');"
                "fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,1,0)",
                str(store / "lock"),
            ],
            capture_output=True,
            check=False,
        )
        asked.append(answer.returncode != 0)
        return run_in_this_process(tasks, work, label)

    rebuild(str(store), in_place=True, run=run, index_slots=16, index_entries=400)

    assert asked
    assert all(asked)
    descriptor = os.open(store / "lock", os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
    os.close(descriptor)


def test_a_rebuild_in_place_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 5)
    before = queue_files(store), index_files(store), sorted((store / "rockhopper").iterdir())

    def fail(tasks: object, work: object, label: str) -> list[object]:
        raise PipelineError("a worker was lost: try again")

    with pytest.raises(PipelineError, match="try again"):
        rebuild(str(store), in_place=True, run=fail, index_slots=16, index_entries=400)

    after = queue_files(store), index_files(store), sorted((store / "rockhopper").iterdir())
    assert after == before


def test_a_commit_log_alone_is_enough(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store")
    log = tmp_path / "alone" / "commitlog"
    shutil.copytree(store / "commitlog", log)

    rebuilt(log, tmp_path / "output", **QUEUE_SIZES)

    assert queue_files(tmp_path / "output") == queue_files(store)


def test_a_dry_run_makes_nothing(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 5)

    result = rebuilt(store, tmp_path / "output", dry_run=True)

    assert result.is_dry_run
    assert not (tmp_path / "output").exists()
    assert "Would rebuild" in next(iter(result.lines()))


@pytest.mark.parametrize("name", ["plain", "killed"])
def test_the_geometry_of_an_index_need_not_be_said(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path / "apache").path

    rebuilt(store, tmp_path / "output", index_slots=None, index_entries=None)

    assert index_files(tmp_path / "output") == index_files(store)


def test_an_index_whose_geometry_is_not_known_stays_as_it_is(tmp_path: Path) -> None:
    store = apache_golden.unpack("plain", tmp_path / "apache").path
    for path in sorted((store / "index").iterdir()):
        overwrite(path, 24, (1 << 40).to_bytes(8, "big"))
    before = queue_files(store), index_files(store)
    unsaid = {"index_slots": None, "index_entries": None}

    with pytest.raises(PipelineError, match="set --index-slots and --index-entries"):
        rebuilt(store, None, in_place=True, index_tags=True, **unsaid)
    foretold = rebuilt(store, None, in_place=True, dry_run=True, **unsaid)
    result = rebuilt(store, None, in_place=True, **unsaid)

    assert result.is_good
    assert (queue_files(store), index_files(store)) == before
    for one in (foretold, result):
        assert any("not made, and what is there stays" in line for line in one.lines())
    rebuilt(store, tmp_path / "output", **unsaid)
    assert queue_files(tmp_path / "output") == before[0]
    assert not (tmp_path / "output" / "index").exists()


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", 5)

    with pytest.raises(UsageProblem, match="one of the two"):
        rebuilt(store, None)
    with pytest.raises(PipelineError, match="has a directory consumequeue already"):
        rebuilt(store, store)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").touch()
    for dry_run in (True, False):
        with pytest.raises(PipelineError, match="home is not empty: give an output directory"):
            rebuilt(store, tmp_path / "home", dry_run=dry_run)
    with pytest.raises(PipelineError, match="maxHashSlotNum"):
        rebuilt(store, tmp_path / "output", index_slots=17)
    with pytest.raises(PipelineError, match="messageDelayLevel"):
        rebuilt(store, tmp_path / "output", delay_levels="1s soon")
    with pytest.raises(PipelineError, match="there is no directory"):
        rebuilt(tmp_path / "nowhere", tmp_path / "output")
