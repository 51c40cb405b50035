"""The job ``compact``: the same messages in fewer files, wherever it is killed."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import INTENT_FILE, REPLACED_DIRECTORY, Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.archiving.manifest import make_stored_key
from rockhopper.pipeline.jobs.results import UsageProblem
from tests.support.mortal_files import Killed, Mortal, committed_offsets, plain_offsets
from tests.support.written_logs import WrittenLog

RUNS, MESSAGES = 3, 12
JSON = json.dumps({"type": "object", "properties": {"id": {"type": "integer"}}})


def archived(tmp_path: Path, name: str = "a", **given: Any) -> tuple[WrittenLog, Path]:
    """A log, and an archive of it that several runs made."""
    log, root = WrittenLog(tmp_path / f"store-{name}"), tmp_path / f"archive-{name}"
    for _ in range(RUNS):
        log.add(MESSAGES, body=b'{"id": 7}')
        jobs.archive(root, path=log.root, **given)
    return log, root


def rows(root: Path) -> list[dict[str, Any]]:
    """Every archived message, in the order of the files."""
    files = sorted(Catalog(LocalFiles(root)).archived_files(), key=make_stored_key)
    return [row for file in files for row in pq.ParquetFile(root / file.path).read().to_pylist()]


def by_place(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: row["physOffset"])


def test_messages_stay_as_they_are_in_the_order_of_their_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, root = archived(tmp_path, decode="json", schema=JSON)
    before = rows(root)

    with monkeypatch.context() as patch:  # no body is decoded once more
        patch.setattr("rockhopper.pipeline.jobs.archiving.writing.ValueDecoder", None)
        result = jobs.compact(root)

    assert (result.files_before, result.files_after, result.rows) == (9, 3, RUNS * MESSAGES)
    assert by_place(rows(root)) == by_place(before)
    for file in Catalog(LocalFiles(root)).archived_files():
        found = pq.ParquetFile(root / file.path).read(["queueId", "queueOffset"]).to_pylist()
        order = [(row["queueId"], row["queueOffset"]) for row in found]
        assert order == sorted(order)
    assert plain_offsets(root) == committed_offsets(root) == log.offsets
    assert jobs.compact(root).run is None
    log.add(MESSAGES, body=b'{"id": 8}')
    again = jobs.archive(root, path=log.root)
    assert (again.rows, again.run) == (MESSAGES, 5)


def test_an_audit_proves_what_was_merged(tmp_path: Path) -> None:
    log, root = archived(tmp_path)
    jobs.compact(root)

    assert jobs.audit(str(log.root), archive=str(root), checks=["archive"]).findings == []

    (file, *_) = Catalog(LocalFiles(root)).archived_files()
    data = bytearray((root / file.path).read_bytes())
    data[len(data) // 2] ^= 1
    (root / file.path).write_bytes(data)
    assert jobs.audit(str(log.root), archive=str(root), checks=["archive"]).findings


@pytest.mark.costly
def test_a_run_that_is_killed_at_any_step_is_completed_or_cleared_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = cleared = 0
    for number in range(100):  # more steps than a run has
        log, root = archived(tmp_path, str(number))
        mortal = Mortal(LocalFiles(root), number)
        with monkeypatch.context() as patch:
            for module in ("kept_archives", "archiving.writing"):
                patch.setattr(f"rockhopper.pipeline.jobs.{module}.files_at", lambda _: mortal)  # noqa: B023
            try:
                jobs.compact(root, keep_old_ms=0)
                break
            except Killed:
                pass
        # Whoever goes by the manifests finds each message once, in files that are there.
        assert committed_offsets(root) == log.offsets, mortal.steps
        assert set(plain_offsets(root)) == set(log.offsets)

        if number % 2:
            result = jobs.archive(root, path=log.root)
            finished += result.unfinished_run == RUNS + 1
        else:
            cleared += jobs.compact(root, keep_old_ms=0).run == RUNS + 1

        assert plain_offsets(root) == committed_offsets(root) == log.offsets, mortal.steps
        assert not (root / INTENT_FILE).exists()
        jobs.compact(root, keep_old_ms=0)
        assert plain_offsets(root) == log.offsets
        assert LocalFiles(root).names(REPLACED_DIRECTORY) == []
    else:
        pytest.fail("the run had more steps than were tried")
    assert finished > 3
    assert cleared > 3


def test_what_was_merged_stays_aside_for_a_while(tmp_path: Path) -> None:
    log, root = archived(tmp_path)
    before = [file.path for file in Catalog(LocalFiles(root)).archived_files()]
    jobs.compact(root, keep_old_ms=1000, now_ms=lambda: 5_000)
    aside = root / REPLACED_DIRECTORY / "run-00000004"
    assert all((aside / f"{path}.replaced").exists() for path in before)
    # Readers that take directories with an underscore as well count each message once.
    everywhere = sum(pq.ParquetFile(path).metadata.num_rows for path in root.rglob("*.parquet"))
    assert everywhere == RUNS * MESSAGES

    jobs.compact(root, now_ms=lambda: 5_999)
    assert aside.exists()
    jobs.archive(root, path=log.root)
    assert not aside.exists()


def test_a_damaged_file_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    log, root = archived(tmp_path)
    file = Catalog(LocalFiles(root)).archived_files()[4]
    whole = (root / file.path).read_bytes()
    for broken in (whole[:-9] + b"x" * 9, whole[:50] + b"?" + whole[51:]):
        (root / file.path).write_bytes(broken)
        with pytest.raises(PipelineError, match=rf"{file.path} is damaged .*restore it"):
            jobs.compact(root)
    (root / file.path).unlink()
    with pytest.raises(PipelineError, match=rf"{file.path} is damaged .*restore it"):
        jobs.compact(root)
    (root / file.path).write_bytes(whole)
    assert plain_offsets(root) == committed_offsets(root) == log.offsets
    assert jobs.compact(root).files_after == 3


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    _, root = archived(tmp_path)
    before = sorted(root.rglob("*"))

    result = jobs.compact(root, dry_run=True, topics=["topic-1"])

    assert (result.files_before, result.files_after, result.run) == (3, 1, None)
    assert sorted(root.rglob("*")) == before


def test_what_is_no_archive_or_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"there is no archive in {tmp_path}/x"):
        jobs.compact(tmp_path / "x")
    _, root = archived(tmp_path)
    with pytest.raises(UsageProblem, match="has no topic 'topic-9'"):
        jobs.compact(root, topics=["topic-9"])
    with pytest.raises(UsageProblem, match="rewrite_data_files"):
        jobs.compact("iceberg:lake.db.orders")
