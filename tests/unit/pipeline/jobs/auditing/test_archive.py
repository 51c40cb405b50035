"""An archive against the log and its own manifests."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import ArchivedFile, QueueSummary
from rockhopper.pipeline.jobs.archiving.writing import summarise_batch
from rockhopper.pipeline.jobs.auditing.archive import (
    ArchivedRange,
    FileColumns,
    LogSums,
    MessageSums,
    check_foreign_files,
    compare_sums,
    describe_unknown_columns,
    find_archived_ranges,
    read_archive,
)
from rockhopper.pipeline.jobs.auditing.findings import AuditFindings, FaultKind
from rockhopper.pipeline.jobs.auditing.result import AuditResult
from rockhopper.pipeline.jobs.body_hash import body_crcs
from rockhopper.pipeline.jobs.column_hash import NO_SUMS, column_hashes, compute_total, sum_columns
from tests.support import apache_golden
from tests.support.derived_stores import APACHE_GEOMETRY, audited
from tests.support.rot import overwrite
from tests.support.written_archives import archive_of
from tests.support.written_logs import WrittenLog


def rewrite_as_format_1(archive: Path) -> None:
    """Let the manifest say what it said when hashes were those of CRCs with 32 bits."""
    (path,) = archive.glob("_rockhopper/manifest-*.json")
    document = json.loads(path.read_bytes())
    document["format"] = 1
    for file in document["files"]:
        del file["sha256"]
        (rows,) = pq.ParquetFile(archive / file["path"]).iter_batches()
        crcs = body_crcs(rows.column("body"))
        found = {each.queue_id: each for each in summarise_batch("", rows, crcs, crc_bits=32)}
        for queue in file["queues"]:
            assert queue.pop("crcBits") == 31
            was = queue["bodyHash"]
            queue["bodyHash"] = f"{found[queue['queueId']].body_hash:016x}"
            assert queue["bodyHash"] != was
    path.write_text(json.dumps(document))


def rewrite_as_format(number: int, archive: Path) -> None:
    """Let the manifest say what it said before files had checksums; 3 had hashes of columns."""
    (path,) = archive.glob("_rockhopper/manifest-*.json")
    document = json.loads(path.read_bytes())
    document["format"] = number
    for file in document["files"]:
        del file["sha256"]
        (rows,) = pq.ParquetFile(archive / file["path"]).iter_batches()
        for queue in file["queues"]:
            del queue["columnsHash"]
            if number == 3:
                of_queue = rows.filter(pc.equal(rows.column("queueId"), queue["queueId"]))
                queue["columnsHash"] = f"{compute_total(sum_columns(column_hashes(of_queue))):016x}"
    path.write_text(json.dumps(document))


CHANGES: dict[str, Any] = {
    "tags": "blue",
    "keys": None,
    "sysFlag": 8,
    "properties": [("KEYS", "k"), ("TAGS", "red")],
    "msgId": "",
    "bornTimestamp": 0,
    "storeHost": "1.2.3.4:5",
    "physOffset": 7,
}


def rewrite(archive: Path, name: str) -> Path:
    """Change a column of one row in a file of topic-1."""
    (path,) = archive.glob("topic=topic-1/*/*.parquet")
    table = pq.ParquetFile(path).read()
    at = table.schema.get_field_index(name)
    field = table.schema.field(at)
    values = table.column(at).to_pylist()
    values[7] = CHANGES[name]
    pq.write_table(table.set_column(at, field, pa.array(values, field.type)), path)
    return path


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store", file_size_bytes=8192).add(120)


@pytest.fixture
def archive(log: WrittenLog, tmp_path: Path) -> Path:
    return archive_of(log, tmp_path / "archive", end=log.offsets[90])


def audit(log: WrittenLog, archive: Path) -> AuditResult:
    return audited(log.root, archive=str(archive), checks=["crc", "archive"])


def test_nothing_is_wrong(log: WrittenLog, archive: Path) -> None:
    result = audit(log, archive)

    assert result.counts == {}
    assert result.archived_and_in_log_count == 90
    assert result.not_archived_count == 30
    assert result.archived_file_count == 3


def test_what_expired_is_only_in_the_archive(log: WrittenLog, archive: Path) -> None:
    log.file_of(0).unlink()

    result = audit(log, archive)

    assert result.counts == {}
    assert result.only_archived_count + result.archived_and_in_log_count == 90
    assert result.only_archived_count > 0


def test_a_body_that_differs(log: WrittenLog, archive: Path) -> None:
    log.write(log.offsets[10] + 88, b"BODY")

    result = audit(log, archive)

    assert result.counts == {"body": 1, "archive differs": 1}
    finding = result.findings[-1]
    assert finding["topic"] == "topic-1"
    assert "other bodies" in finding["reason"]


def test_a_body_that_was_damaged_before_it_was_archived(log: WrittenLog, tmp_path: Path) -> None:
    log.write(log.offsets[10] + 88, b"BODY")
    archive = archive_of(log, tmp_path / "archive")
    (bad,) = archive.glob("topic=topic-1/*/*.parquet")

    result = audit(log, archive)

    assert result.counts == {"body": 1, "archive differs": 1, "archive file": 1}
    assert {Path(each["path"]).name for each in result.findings[1:]} == {bad.name}


@pytest.mark.parametrize("name", list(CHANGES))
def test_a_column_that_was_changed(name: str, log: WrittenLog, archive: Path) -> None:
    changed = rewrite(archive, name)

    result = audit(log, archive)
    rewrite_as_format(2, archive)
    compared = audit(log, archive)
    for path in log.commit_log.iterdir():
        path.write_bytes(b"")
    alone = audit(log, archive)

    assert result.counts == {"archive differs": 1, "archive file": 1}
    found = {one["kind"]: one for one in result.findings}
    assert found["archive file"]["path"] == str(changed)
    assert found["archive differs"]["reason"].endswith(f"than the log in {name}")
    assert found["archive differs"]["topic"] == "topic-1"
    assert (compared.counts, compared.unchecked) == ({"archive differs": 1}, {})
    assert alone.counts == {}
    assert "90 archived messages" in alone.unchecked["columns"]
    assert list(alone.lines())[-1] == "Nothing is wrong in what was checked."


@pytest.mark.parametrize("number", [3, 4])
def test_without_the_log_the_manifest_knows_the_columns(
    number: int, log: WrittenLog, archive: Path
) -> None:
    if number == 3:
        rewrite_as_format(3, archive)
    for path in log.commit_log.iterdir():
        path.write_bytes(b"")
    assert audit(log, archive).counts == {}

    changed = rewrite(archive, "tags")
    result = audit(log, archive)

    assert (result.counts, result.unchecked) == ({"archive file": 1}, {})
    assert result.findings[0]["path"] == str(changed)
    assert ("columns besides the bodies" in result.findings[0]["reason"]) == (number == 3)
    assert ("SHA-256" in result.findings[0]["reason"]) == (number == 4)


def test_manifests_of_format_1_have_other_hashes(log: WrittenLog, archive: Path) -> None:
    rewrite_as_format_1(archive)

    assert audit(log, archive).counts == {}

    log.write(log.offsets[10] + 88, b"BODY")
    assert audit(log, archive).counts == {"body": 1, "archive differs": 1}


def test_a_file_that_is_damaged_or_gone(log: WrittenLog, archive: Path) -> None:
    first, second, _ = sorted(archive.rglob("*.parquet"))
    overwrite(first, 100, bytes(600))
    second.unlink()

    result = audit(log, archive)

    assert result.counts == {"archive file": 2}
    assert {one["path"] for one in result.findings} == {str(first), str(second)}


def test_files_that_no_manifest_lists(log: WrittenLog, archive: Path) -> None:
    first = min(archive.rglob("*.parquet"))
    copied = first.with_name("copied.parquet")
    shutil.copy(first, copied)
    notes = archive / "notes.txt"
    notes.write_text("foreign")
    (archive / "topic=file").write_text("no directory")
    (archive / ".hidden").write_text("Spark does not read it")

    result = audit(log, archive)

    assert result.counts == {"archive foreign": 3}
    found = {one["path"] for one in result.findings}
    assert found == {str(copied), str(notes), str(archive / "topic=file")}


def test_files_of_a_run_that_was_killed_while_it_committed_are_not_foreign(
    log: WrittenLog, archive: Path
) -> None:
    newest = max((archive / "_rockhopper").glob("manifest-*.json"))
    manifest = json.loads(newest.read_text())
    staged = [f"_rockhopper/staging/{number}" for number, _ in enumerate(manifest["files"])]
    intent = {"manifest": manifest, "staged": staged}
    (archive / "_rockhopper" / "intent.json").write_text(json.dumps(intent))
    (archive / "topic=topic-1" / "moved.parquet").write_text("its manifest comes")

    assert audit(log, archive).counts == {}


def test_the_broker_has_to_be_named_among_several(log: WrittenLog, archive: Path) -> None:
    with pytest.raises(PipelineError, match="did you mean 'broker-a'"):
        audited(log.root, archive=str(archive), broker_name="broker-b")


def test_a_store_of_apache_and_its_archive(tmp_path: Path) -> None:
    store = apache_golden.unpack("batch", tmp_path).path
    log = WrittenLog(store)
    archive = archive_of(log, tmp_path / "archive")

    result = audited(store, archive=str(archive), **APACHE_GEOMETRY)

    assert result.counts == {}
    assert result.archived_and_in_log_count >= 75


def test_files_of_two_brokers_are_summed_apart(log: WrittenLog, tmp_path: Path) -> None:
    archive = archive_of(log, tmp_path / "archive")
    (manifest,) = (archive / "_rockhopper").glob("manifest-*.json")
    document = json.loads(manifest.read_text())
    file = document["files"][0]
    path = archive / file["path"]
    table = pq.ParquetFile(path).read()
    names = pa.array(["broker-a" if n < 10 else "broker-b" for n in range(len(table))])
    table = table.set_column(table.schema.get_field_index("brokerName"), "brokerName", names)
    pq.write_table(table, path)
    batches = [table.slice(0, 10), table.slice(10)]
    found = [
        each
        for part in batches
        for batch in part.to_batches()
        for each in summarise_batch(file["topic"], batch, body_crcs(batch.column("body")))
    ]
    (was, *_) = file["queues"]
    file["sha256"] = None
    file["queues"] = [
        {
            **was,
            "broker": each.broker,
            "queueId": each.queue_id,
            "firstOffset": each.first_offset,
            "lastOffset": each.last_offset,
            "rows": each.rows,
            "bodyBytes": each.body_bytes,
            "bodyHash": f"{each.body_hash:016x}",
        }
        for each in found
    ]
    manifest.write_text(json.dumps(document))

    result = audited(log.root, archive=str(archive), checks=["archive"], broker_name="broker-a")

    assert {each.broker for each in found} == {"broker-a", "broker-b"}
    assert "archive file" not in result.counts
    with pytest.raises(PipelineError, match="of the brokers broker-a, broker-b: name the one"):
        audited(log.root, archive=str(archive), checks=["archive"])


def summary(first: int, last: int, broker: str = "a", **more: Any) -> QueueSummary:
    given: dict[str, Any] = {"rows": last - first + 1, "body_bytes": 10, "body_hash": 7, **more}
    return QueueSummary("T", broker, 0, first, last, min_store_ms=0, max_store_ms=0, **given)


def file_of(path: str, *queues: QueueSummary, sha256: str | None = None) -> ArchivedFile:
    return ArchivedFile(path, "T", "2026-11-20", 1, 1, 0, 0, queues, sha256)


def test_ranges_are_those_of_a_broker_ascending_and_overlapping_ones_are_one() -> None:
    files = [
        file_of("late", summary(20, 29)),
        file_of("one", summary(0, 4), summary(0, 99, "b")),
        file_of("two", summary(4, 9, body_hash=(1 << 64) - 1)),
    ]

    ranges = find_archived_ranges(files, "a")

    one, two, late = (("one", ("T", "a", 0)), ("two", ("T", "a", 0)), ("late", ("T", "a", 0)))
    assert ranges == {
        ("T", 0): (
            ArchivedRange(0, 9, MessageSums(11, 20, 6), (one, two), 31),
            ArchivedRange(20, 29, MessageSums(10, 10, 7), (late,), 31),
        )
    }
    (whole,) = find_archived_ranges(files, None)["T", 0]
    assert (whole.first, whole.last, len(whole.parts)) == (0, 99, 4)
    assert find_archived_ranges([], None) == {}


def test_sums_of_two_kinds_cannot_be_compared() -> None:
    files = [file_of("one", summary(0, 4, crc_bits=32)), file_of("two", summary(4, 9))]

    ((found,),) = find_archived_ranges(files, None).values()

    assert (found.crc_bits, found.sums) == (0, MessageSums(11, 20, 0))


QUEUE = ("T", 0)


def differences(
    ranges: list[QueueSummary], in_log: dict[int, MessageSums], start: int | None = 0
) -> tuple[tuple[int, int, int], list[tuple[FaultKind, str, int | None, int]]]:
    """What is said where the log has *in_log* in its ranges (odd) and between them."""
    archived = find_archived_ranges([file_of(f"f{n}", each) for n, each in enumerate(ranges)], None)
    found, findings = LogSums(), AuditFindings()
    found.sums = {(*QUEUE, number): sums for number, sums in in_log.items()}
    if start is not None:
        found.starts[QUEUE] = start
    columns: FileColumns = {}
    counts = compare_sums(archived, found, columns, findings)
    return counts, [(one.kind, one.reason, one.queue_offset, one.count) for one in findings.kept]


@pytest.mark.parametrize(
    ("in_log", "kind", "reason", "count"),
    [
        (
            MessageSums(9, 10, 7),
            FaultKind.ARCHIVE_DIFFERS,
            "offsets 5 to 14: the archive has 10 messages, and the log has 9",
            1,
        ),
        (
            MessageSums(12, 10, 7),
            FaultKind.ARCHIVE_MISSING,
            "offsets 5 to 14: the archive has 10 messages, and the log has 12",
            2,
        ),
        (
            MessageSums(10, 11, 7),
            FaultKind.ARCHIVE_DIFFERS,
            "offsets 5 to 14: the archive has bodies of 10 bytes, those in the log 11",
            10,
        ),
        (
            MessageSums(10, 10, 8),
            FaultKind.ARCHIVE_DIFFERS,
            "offsets 5 to 14: the archive has other bodies than the log, or CRCs of others",
            10,
        ),
    ],
)
def test_what_log_and_archive_have_otherwise(
    in_log: MessageSums, kind: FaultKind, reason: str, count: int
) -> None:
    counts, said = differences([summary(5, 14)], {1: in_log})

    assert counts == (in_log.rows, 0, 0)
    assert said == [(kind, reason, 5, count)]


def test_what_is_on_one_side_only_is_counted() -> None:
    ranges = [summary(5, 14), summary(20, 29)]
    same = MessageSums(10, 10, 7)

    assert differences(ranges, {1: same, 3: same, 4: MessageSums(6)}) == ((20, 0, 6), [])
    assert differences(ranges, {0: MessageSums(2), 1: same, 3: same}) == ((20, 0, 0), [])
    assert differences(ranges, {3: same}, start=6) == ((10, 10, 0), [])
    assert differences(ranges, {}, start=None) == ((0, 20, 0), [])
    assert differences(ranges, {1: same, 2: MessageSums(3), 3: same})[1] == [
        (FaultKind.ARCHIVE_MISSING, "3 messages of the log are in no file of the archive", 15, 3)
    ]


def test_sums_add_up_over_tasks() -> None:
    one, other = LogSums(), LogSums()
    one.sums, one.starts = {("T", 0, 1): MessageSums(1, 2, (1 << 64) - 1)}, {QUEUE: 7}
    other.sums = {("T", 0, 1): MessageSums(1, 2, 2), ("T", 0, 3): MessageSums(4)}
    other.starts = {QUEUE: 5, ("T", 1): 3}

    one.extend(other)

    assert one.sums == {("T", 0, 1): MessageSums(2, 4, 1), ("T", 0, 3): MessageSums(4)}
    assert one.starts == {QUEUE: 5, ("T", 1): 3}


def test_columns_that_nobody_noted_are_unknown_where_the_log_has_them_no_more() -> None:
    noted = summary(0, 9, columns_hash=1)
    files = [
        file_of("old", summary(0, 9)),
        file_of("noted", noted),
        file_of("new", summary(0, 9), sha256="x"),
    ]
    left: FileColumns = {(file.path, ("T", "a", 0)): NO_SUMS for file in files}

    assert describe_unknown_columns(files, left).startswith(
        "10 archived messages came into the archive"
    )
    assert describe_unknown_columns(files, {}) == ""
    assert describe_unknown_columns(files[1:], left) == ""


def test_readers_of_parquet_see_what_is_below_topics_and_dates(tmp_path: Path) -> None:
    seen = ("topic=a/date=b/x.parquet", "topic=a/y", "z", "topic=a/date=b/topic=c")
    hidden = ("topic=a/_x", ".y", "_rockhopper/z", "topic=a/date=b/.crc")
    listed = "topic=a/date=b/listed.parquet"
    for name in (*seen, *hidden, listed):
        LocalFiles(tmp_path).write(name, b"")

    found = check_foreign_files(f"{tmp_path}/", [file_of(listed)])

    assert {one.path for one in found.kept} == {f"{tmp_path}/{name}" for name in seen}
    assert {one.kind for one in found.kept} == {FaultKind.ARCHIVE_FOREIGN}


def test_a_place_without_an_archive_is_none(tmp_path: Path) -> None:
    assert read_archive(str(tmp_path)) is None
