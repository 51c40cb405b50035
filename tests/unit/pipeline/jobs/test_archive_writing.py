"""What tasks write: row groups, many topics at a time, and sums over bodies."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.decoder import decode, walk
from pipeline.jobs.archiving.files import LocalFiles
from pipeline.jobs.archiving.manifest import merged
from pipeline.jobs.archiving.selection import Selection, archived_up_to
from pipeline.jobs.archiving.writing import SplitWriter, WriteTarget, summaries_of
from pipeline.jobs.body_hash import body_hashes
from protocol.message_codec import encode_message


def batch_of(count: int, first: int = 0, topic: str = "t", queue_id: int = 0) -> pa.RecordBatch:
    data = b"".join(
        encode_message(
            topic=topic,
            queue_id=queue_id,
            queue_offset=number,
            body=b"body %d" % number,
            properties={},
            store_time_ms=1_760_000_000_000 + number,
        )
        for number in range(first, first + count)
    )
    (batch,) = decode(data, walk(data, 0, len(data)).offsets)
    return batch


def writer(root: Path, **limits: int) -> SplitWriter:
    (root / "staging").mkdir(parents=True)
    return SplitWriter(WriteTarget(str(root), "staging", 1), 0, files=LocalFiles(root), **limits)


def test_row_groups_have_a_size_worth_having(tmp_path: Path) -> None:
    writing = writer(tmp_path, row_group_rows=25)
    for first in range(0, 100, 10):
        writing.add("t", batch_of(10, first))

    written = writing.finish()

    (file,), (staged,) = written.files, written.staged
    metadata = pq.ParquetFile(tmp_path / staged).metadata
    assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [
        30,
        30,
        30,
        10,
    ]
    assert file.rows == 100
    assert metadata.row_group(0).column(5).compression == "ZSTD"


def test_more_topics_than_files_may_be_open(tmp_path: Path) -> None:
    writing = writer(tmp_path, row_group_rows=1, open_files_max=2)
    for round_ in range(2):
        for topic in ("a", "b", "c", "d"):
            writing.add(topic, batch_of(1, round_, topic))

    written = writing.finish()

    rows = {
        topic: sum(each.rows for each in written.files if each.topic == topic) for topic in "abcd"
    }
    assert rows == dict.fromkeys("abcd", 2)
    assert len({each.path for each in written.files}) == len(written.files) > 4
    assert all((tmp_path / name).is_file() for name in written.staged)


def test_an_empty_split_writes_nothing(tmp_path: Path) -> None:
    written = writer(tmp_path).finish()

    assert written.files == []
    assert written.staged == []
    assert list((tmp_path / "staging").iterdir()) == []


def test_parts_of_a_queue_add_up_in_any_order() -> None:
    whole = batch_of(90)
    cuts = [whole.slice(60), whole.slice(0, 25), whole.slice(25, 35)]

    assert merged([each for cut in cuts for each in summaries_of("t", cut)]) == tuple(
        summaries_of("t", whole)
    )


def test_the_sum_tells_damage_loss_doubling_and_swaps() -> None:
    bodies = [b"a", b"bb", b"ccc", b""]

    def sum_of(bodies: list[bytes], offsets: list[int]) -> int:
        hashes = body_hashes(pa.array(bodies, pa.binary()), np.array(offsets, np.int64))
        return int(hashes.sum(dtype=np.uint64))

    known = sum_of(bodies, [0, 1, 2, 3])
    assert known == sum_of(bodies[::-1], [3, 2, 1, 0])
    others = [
        sum_of([b"a", b"bb", b"ccd", b""], [0, 1, 2, 3]),
        sum_of(bodies[:3], [0, 1, 2]),
        sum_of([*bodies, b""], [0, 1, 2, 3, 3]),
        sum_of([b"bb", b"a", b"ccc", b""], [0, 1, 2, 3]),
        sum_of(bodies, [1, 2, 3, 4]),
    ]
    assert known not in others
    assert len(set(others)) == len(others)
    sliced = pa.array([b"x", *bodies], pa.binary()).slice(1)
    assert int(body_hashes(sliced, np.arange(4)).sum(dtype=np.uint64)) == known
    assert len(body_hashes(pa.array([], pa.binary()), np.zeros(0, np.int64))) == 0


def test_positions_say_up_to_where_each_topic_is_archived() -> None:
    some = Selection(("a", "%DLQ%g"))
    pattern = Selection(pattern="a.*")
    all_topics = Selection()
    positions = some.advanced({}, 100)

    assert some.start(positions) == 100
    assert all_topics.start(positions) == pattern.start(positions) == 0
    assert archived_up_to(positions, "a") == 100
    positions = pattern.advanced(positions, 150)
    assert archived_up_to(positions, "ab") == 150
    assert Selection(("ab", "b")).start(positions) == 0
    positions = all_topics.advanced(positions, 200)
    assert positions == {"%DLQ%g": 100, "*": 200}
    assert Selection(("ab",)).start(positions) == pattern.start(positions) == 200
    assert archived_up_to(positions, "%DLQ%other") == 0
