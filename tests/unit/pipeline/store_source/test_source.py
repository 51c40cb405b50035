"""What ``rocketmq-store`` reads from stores that are whole, stopped or in use."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.store_source.splits import split_size_bytes
from rockhopper.protocol.store.queue_layout import CHECKPOINT, encode_own_checkpoint
from rockhopper.protocol.store.topic_ends import encode_ends
from tests.support import apache_golden, golden_stores
from tests.support.written_logs import T0_MS, WrittenLog, read_rows, store_reader

FIVE = {"columns": "topic,queueId,queueOffset,physOffset,storeTimestamp"}


@pytest.mark.parametrize("name", ["plain", "batch", "extended", "killed"])
def test_stores_of_apache_hold_what_its_client_read(name: str, tmp_path: Path) -> None:
    store = apache_golden.unpack(name, tmp_path)

    rows = {(r["topic"], r["queueId"], r["queueOffset"]): r for r in read_rows(store.path)}

    for topic, content in store.topics.items():
        for message in content["messages"]:
            row = rows.pop((topic, message["queueId"], message["queueOffset"]))
            assert row["msgId"] == message["msgId"]
            assert row["physOffset"] == message["commitLogOffset"]
            assert row["tags"] == message.get("tags")
            assert row["flag"] == message["flag"]
            assert row["storeTimestamp"].timestamp() * 1000 == message["storeTimestamp"]
            assert row["bornTimestamp"].timestamp() * 1000 == message["bornTimestamp"]
            assert hashlib.sha1(row["body"]).hexdigest() == message["sha1"]
            assert row["offsetMsgId"] == message.get("offsetMsgId", row["offsetMsgId"])
            # These three the broker and the client add to what they hand out.
            added = {"MIN_OFFSET", "MAX_OFFSET", "CLUSTER"}
            kept = {k: v for k, v in message["properties"].items() if k not in added}
            assert {k: v for k, v in row["properties"].items() if k in kept} == kept


@pytest.mark.parametrize(
    ("name", "count"),
    [("basic30", 30), ("mix", 16), ("crcprop", 2), ("eof_exact8", 3), ("three_sessions", 66)],
)
def test_stores_of_the_reference_are_read_whole(name: str, count: int) -> None:
    rows = read_rows(golden_stores.golden_directory() / name, {"verifyCrc": "fail"})

    assert len(rows) == count


def test_any_way_to_cut_the_log_gives_every_message_once_and_in_order(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=16_384).add(700)

    for split_size in (4096, 5000, 16_384, 1 << 20):
        rows = read_rows(tmp_path, {**FIVE, "splitSize": split_size})
        assert [row["physOffset"] for row in rows] == log.offsets
        assert [row["queueOffset"] for row in rows] == list(range(700))


def test_only_what_was_written_is_cut_and_evenly(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=1 << 20).add(700)

    partitions = store_reader(tmp_path, {**FIVE, "splitSize": 20_000}).partitions()

    pieces = [piece for each in partitions for piece in each.pieces]
    sizes = [piece.end - piece.start for piece in pieces]
    assert max(sizes) - min(sizes) <= 1
    assert 0 <= pieces[-1].end - log.end < 8192


@pytest.mark.parametrize("cores", [1, 2, 3, 8, 64])
@pytest.mark.parametrize("total_mib", [1, 100, 719, 2048, 100_000])
def test_all_cores_get_equally_many_splits(cores: int, total_mib: int) -> None:
    total = total_mib << 20

    size = split_size_bytes(total, cores)

    count = -(-total // size)
    assert size <= 128 << 20
    assert count <= cores or count % cores == 0


def test_the_commit_log_directory_serves_as_the_path_too(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(3)

    assert len(read_rows(log.commit_log)) == 3
    assert len(read_rows(f"file://{tmp_path}")) == 3


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()

    assert read_rows(tmp_path) == []


def test_messages_are_chosen_by_topic_queue_and_time(tmp_path: Path) -> None:
    WrittenLog(tmp_path, file_size_bytes=4096).add(100)

    assert {r["topic"] for r in read_rows(tmp_path, {"topic": "topic-1"})} == {"topic-1"}
    assert len(read_rows(tmp_path, {"topic": "topic-0, topic-2"})) == 67
    assert len(read_rows(tmp_path, {"queueId": "1"})) == 50
    timed = {**FIVE, "startingTimestamp": T0_MS + 10, "endingTimestamp": T0_MS + 20}
    assert [r["queueOffset"] for r in read_rows(tmp_path, timed)] == list(range(10, 20))


def test_splits_outside_the_times_are_not_read_at_all(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096)
    for hour in range(10):
        log.add(40, store_time_ms=T0_MS + hour * 3_600_000)
    start = {"startingTimestamp": T0_MS + 5 * 3_600_000, "splitSize": 4096}
    end = {"endingTimestamp": T0_MS + 5 * 3_600_000, "splitSize": 4096}

    all_count = len(store_reader(tmp_path, {"splitSize": 4096}).partitions())

    assert len(store_reader(tmp_path, start).partitions()) <= all_count * 0.7
    assert len(store_reader(tmp_path, end).partitions()) <= all_count * 0.7
    assert len(read_rows(tmp_path, start)) == len(read_rows(tmp_path, end)) == 200


def test_a_range_of_offsets_holds_the_records_that_start_in_it(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(100)
    middle = log.offsets[50]

    before = read_rows(tmp_path, {**FIVE, "endPhysOffset": middle})
    after = read_rows(tmp_path, {**FIVE, "startPhysOffset": middle})
    inside = read_rows(tmp_path, {**FIVE, "startPhysOffset": middle + 1})

    assert [row["queueOffset"] for row in before + after] == list(range(100))
    assert inside[0]["queueOffset"] == 51


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("file", ["deleted-topics", "purged-topics"])
def test_messages_of_deleted_and_purged_topics_are_hidden_unless_asked_for(
    tmp_path: Path, file: str, is_early: bool
) -> None:
    log = WrittenLog(tmp_path).add(30)
    own = tmp_path / "rockhopper"
    own.mkdir()
    note = {"topic-1": log.offsets[15]}
    if is_early:
        (own / f"{file}.json").write_text(json.dumps(note))
    else:
        (own / f"{file}.records").write_bytes(encode_ends({"topic-1": 1}) + encode_ends(note))

    rows = read_rows(tmp_path)

    hidden = [n for n in range(15) if n % 3 == 1]
    assert [r["queueOffset"] for r in rows] == [n for n in range(30) if n not in hidden]
    assert len(read_rows(tmp_path, {"includeDeletedTopics": "true"})) == 30


def live(log: WrittenLog, *, own: bytes = b"", theirs: bytes = b"") -> None:
    """Make the store one that this very process uses, with these checkpoints."""
    (log.root / "abort").write_text(str(os.getpid()))
    if own:
        (log.root / "rockhopper").mkdir()
        (log.root / "rockhopper" / "checkpoint").write_bytes(own.ljust(4096, b"\0"))
    (log.root / "checkpoint").write_bytes(theirs.ljust(4096, b"\0"))


def test_the_log_of_a_running_broker_ends_where_it_was_flushed(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(30)
    own = encode_own_checkpoint(T0_MS + 29, 0, 0, 0, 0, log.offsets[20])
    live(log, own=own, theirs=CHECKPOINT.pack(T0_MS + 29, 0, 0, 0, 0))

    assert len(read_rows(tmp_path)) == 20


def test_the_log_of_a_running_rocketmq_ends_at_the_time_of_its_checkpoint(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(30)
    live(log, theirs=CHECKPOINT.pack(T0_MS + 19, T0_MS + 25, 0, 0, 0))

    assert len(read_rows(tmp_path)) == 20


def test_a_torn_end_is_nothing_special_while_a_broker_writes(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(30)
    log.write(log.end, b"\x00\x00\x01\x00\xda\xa3\x20\xa7 and so on")
    live(log, theirs=CHECKPOINT.pack(T0_MS + 29, T0_MS + 29, 0, 0, 0))

    assert len(read_rows(tmp_path)) == 30


def test_an_abort_file_that_was_left_behind_limits_nothing(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(30)
    live(log, theirs=CHECKPOINT.pack(T0_MS + 3, T0_MS + 3, 0, 0, 0))
    (tmp_path / "abort").write_text("1")
    (tmp_path / "lock").write_text("lock")

    assert len(read_rows(tmp_path)) == 30


def test_a_file_that_expires_while_the_store_is_read_is_an_error_unless_allowed(
    tmp_path: Path,
) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(100)
    options: dict[str, Any] = {"splitSize": 4096}
    strict, lenient = (
        store_reader(tmp_path, {**options, "failOnDataLoss": loss}) for loss in ("true", "false")
    )
    planned = [strict.partitions(), lenient.partitions()]
    log.file_of(0).unlink()

    with pytest.raises(PipelineError, match="failOnDataLoss=false"):
        [list(strict.read(partition)) for partition in planned[0]]
    rows = sum(b.num_rows for p in planned[1] for b in lenient.read(p))
    assert 0 < rows < 100


def test_a_condition_leaves_messages_out_and_needs_no_columns_of_its_own(tmp_path: Path) -> None:
    WrittenLog(tmp_path).add(60).add(3, properties={"KEYS": "k", "TAGS": "odd"})
    found = read_rows(tmp_path, {"columns": "queueId", "where": "keys = 'k' AND tags = 'odd'"})
    assert found == [{"queueId": row["queueId"]} for row in read_rows(tmp_path)[60:]]
    assert read_rows(tmp_path, {"where": "keys = 'nothing'"}) == []
    with pytest.raises(PipelineError, match="more than a source understands"):
        read_rows(tmp_path, {"where": "length(keys) = 1"})


def test_big_records_and_compressed_bodies_fit_small_windows(tmp_path: Path) -> None:
    from rockhopper.pipeline.store_source.scan import DamagedRange, scan
    from rockhopper.protocol.compression import compress_zlib
    from rockhopper.protocol.store.message_codec import SYS_FLAG_COMPRESSED_ZLIB

    log = WrittenLog(tmp_path, file_size_bytes=1 << 20).add(5).add(body=bytes(300_000)).add(5)
    log.add(body=compress_zlib(b"x" * 5000), sys_flag=SYS_FLAG_COMPRESSED_ZLIB)

    ((piece,),) = (p.pieces for p in store_reader(tmp_path).partitions())
    found = [
        offset
        for records in scan(piece, window_bytes=1024)
        if not isinstance(records, DamagedRange)
        for offset in records.heads["physOffset"].tolist()
    ]

    assert found == log.offsets
    assert read_rows(tmp_path)[-1]["body"] == b"x" * 5000
    assert len(read_rows(tmp_path, {"decompress": "false"})[-1]["body"]) < 100
