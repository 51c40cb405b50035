"""What tasks write: row groups, many topics at a time, and sums over bodies."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline.decoder import decode, walk
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import merge_summaries
from rockhopper.pipeline.jobs.archiving.writing import (
    SplitWriter,
    WriteTarget,
    summarise_batch,
    topic_directory,
)
from rockhopper.pipeline.jobs.body_hash import body_crcs, body_edges, body_hashes, stored_crcs
from rockhopper.protocol.compression import compress_zlib
from rockhopper.protocol.store.message_codec import SYS_FLAG_COMPRESSED_ZLIB
from tests.support.records import encode_message


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
        writing.write_batch("t", batch_of(10, first))

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
    assert file.sha256 == hashlib.sha256((tmp_path / staged).read_bytes()).hexdigest()
    assert metadata.row_group(0).column(5).compression == "ZSTD"


def test_more_topics_than_files_may_be_open(tmp_path: Path) -> None:
    writing = writer(tmp_path, row_group_rows=1, open_files_max=2)
    for round_ in range(2):
        for topic in ("a", "b", "c", "d"):
            writing.write_batch(topic, batch_of(1, round_, topic))

    written = writing.finish()

    rows = {
        topic: sum(each.rows for each in written.files if each.topic == topic) for topic in "abcd"
    }
    assert rows == dict.fromkeys("abcd", 2)
    assert len({each.path for each in written.files}) == len(written.files) > 4
    assert all((tmp_path / name).is_file() for name in written.staged)


def test_the_last_file_to_be_opened_closes_another(tmp_path: Path) -> None:
    writing = writer(tmp_path, row_group_rows=2, open_files_max=2)
    writing.write_batch("few", batch_of(1))
    for topic in ("a", "b"):
        writing.write_batch(topic, batch_of(2, topic=topic))

    written = writing.finish()

    assert sorted((file.topic, file.rows) for file in written.files) == [
        ("a", 2),
        ("b", 2),
        ("few", 1),
    ]


def test_an_empty_split_writes_nothing(tmp_path: Path) -> None:
    written = writer(tmp_path).finish()

    assert written.files == []
    assert written.staged == []
    assert list((tmp_path / "staging").iterdir()) == []


def test_parts_of_a_queue_add_up_in_any_order() -> None:
    whole = batch_of(90)
    cuts = [whole.slice(60), whole.slice(0, 25), whole.slice(25, 35)]

    assert merge_summaries(
        [each for cut in cuts for each in summarise_batch("t", cut, stored_crcs(cut))]
    ) == (*summarise_batch("t", whole, stored_crcs(whole)),)


def test_the_sum_tells_damage_loss_doubling_and_swaps() -> None:
    bodies = [b"a", b"bb", b"ccc", b""]

    def sum_of(bodies: Sequence[bytes] | pa.Array, offsets: list[int]) -> int:
        array = bodies if isinstance(bodies, pa.Array) else pa.array(bodies, pa.binary())
        sizes = np.diff(body_edges(array))
        hashes = body_hashes(body_crcs(array), sizes, np.array(offsets, np.int64))
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
    assert sum_of(sliced, [0, 1, 2, 3]) == known
    assert len(body_crcs(pa.array([], pa.binary()))) == 0


def test_a_body_need_not_be_read_for_its_hash_unless_it_was_compressed() -> None:
    plain = [b"", b"a", b"body" * 100, bytes(range(256))]
    packed = SYS_FLAG_COMPRESSED_ZLIB
    records: list[dict[str, Any]] = [{"body": body} for body in plain]
    records += [{"body": compress_zlib(body), "sys_flag": packed} for body in plain]
    data = b"".join(encode_message(topic="t", **record) for record in records)
    offsets = walk(data, 0, len(data)).offsets

    (batch,) = decode(data, offsets)
    (wrong,) = decode(data.replace(b"bodybody", b"BODYbody"), offsets)

    expected = [crc32(body) & 0x7FFFFFFF for body in plain] * 2
    assert stored_crcs(batch).tolist() == expected
    assert stored_crcs(wrong).tolist() == expected
    assert (body_crcs(wrong.column("body")) & np.uint64(0x7FFFFFFF)).tolist() != expected


def test_bodies_that_do_not_compress_are_written_as_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    writing = writer(tmp_path)
    for topic, body in (("text", b"body" * 50), ("random", random.bytes(200))):
        bodies = [body if topic == "text" else random.bytes(200) for _ in range(100)]
        batch = batch_of(100, topic=topic)
        writing.write_batch(topic, batch.set_column(6, "body", pa.array(bodies, pa.binary())))

    written = writing.finish()

    codecs = {
        file.topic: {
            name: group.column(number).compression
            for number in range(group.num_columns)
            if (name := group.column(number).path_in_schema) in ("body", "msgId")
        }
        for file, staged in zip(written.files, written.staged, strict=True)
        for group in [pq.ParquetFile(tmp_path / staged).metadata.row_group(0)]
    }
    assert codecs == {
        "text": {"body": "ZSTD", "msgId": "ZSTD"},
        "random": {"body": "UNCOMPRESSED", "msgId": "ZSTD"},
    }


@pytest.mark.parametrize(
    ("topic", "directory"),
    [
        ("orders", "topic=orders"),
        ("%LIKE", "topic=%25LIKE"),
        ("__HIVE_DEFAULT_PARTITION__", "topic=%5F_HIVE_DEFAULT_PARTITION__"),
    ],
)
def test_no_topic_is_read_as_null(topic: str, directory: str) -> None:
    assert topic_directory(topic) == directory
    assert unquote(directory) == f"topic={topic}"
