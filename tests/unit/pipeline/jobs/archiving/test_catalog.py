"""An archive's run is there whole or not at all, wherever it is killed."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving import job
from rockhopper.pipeline.jobs.archiving.catalog import CURRENT_FILE, INTENT_FILE, Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles, RemoteFiles
from tests.support.mortal_files import Killed, Mortal, committed_offsets, plain_offsets
from tests.support.written_logs import WrittenLog

MESSAGES = 40


@pytest.fixture
def log(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "store").add(MESSAGES)


def run(log: WrittenLog, root: Path, monkeypatch: pytest.MonkeyPatch, files: Any) -> Any:
    """Archive with *files* in place of the directory's own; tasks run here, without Spark."""
    monkeypatch.setattr(job, "files_at", lambda _: files)
    monkeypatch.setattr("rockhopper.pipeline.jobs.archiving.writing.files_at", lambda _: files)
    return job.archive(root, path=log.root)


@pytest.mark.costly
def test_a_run_that_is_killed_at_any_step_is_completed_or_cleared_by_the_next(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = log.offsets[: MESSAGES // 2]
    finished = cleared = 0
    for number in range(60):  # more steps than a run has
        root = tmp_path / f"archive-{number}"
        half = WrittenLog(tmp_path / f"store-{number}").add(MESSAGES // 2)
        run(half, root, monkeypatch, LocalFiles(root))
        half.add(MESSAGES // 2)
        mortal = Mortal(LocalFiles(root), number)
        try:
            run(half, root, monkeypatch, mortal)
            assert number >= len(mortal.steps)
            break
        except Killed:
            pass
        # Whoever goes by the manifests sees whole runs only.
        assert committed_offsets(root) in (first, log.offsets)
        # A plain listing never shows a run that is not going to be completed.
        seen_beyond = set(plain_offsets(root)) - set(first)
        if seen_beyond:
            assert Catalog(LocalFiles(root)).killed_run() == 2 or (
                committed_offsets(root) == log.offsets
            )

        result = run(half, root, monkeypatch, LocalFiles(root))

        assert plain_offsets(root) == committed_offsets(root) == log.offsets, mortal.steps
        assert not (root / INTENT_FILE).exists()
        finished += result.unfinished_run == 2
        cleared += result.rows == MESSAGES // 2
        assert run(half, root, monkeypatch, LocalFiles(root)).rows == 0
    else:
        pytest.fail("the run had more steps than were tried")
    assert finished > 5
    assert cleared > 5


def test_a_first_run_that_is_killed_leaves_nothing_that_counts(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "archive"
    with pytest.raises(Killed):
        run(log, root, monkeypatch, Mortal(LocalFiles(root), 3))

    assert plain_offsets(root) == []
    assert Catalog(LocalFiles(root)).current() is None
    assert run(log, root, monkeypatch, LocalFiles(root)).rows == MESSAGES


def test_two_runs_at_once_are_refused(log: WrittenLog, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    with (
        Catalog(LocalFiles(root)).lock(),
        pytest.raises(PipelineError, match=r"process \d+ on .* is at work on .*wait"),
    ):
        job.archive(root, path=log.root)


def test_damaged_files_of_the_archive_are_named(log: WrittenLog, tmp_path: Path) -> None:
    root = tmp_path / "archive"
    job.archive(root, path=log.root)
    pointer = root / CURRENT_FILE
    manifest = root / "_rockhopper" / "manifest-00000001.json"
    before = manifest.read_bytes()

    manifest.write_bytes(before.replace(b'"format": 5', b'"format": 9'))
    with pytest.raises(PipelineError, match=r"has the format 9, .* use a newer one"):
        job.archive(root, path=log.root)
    manifest.write_bytes(before[:-40])
    with pytest.raises(PipelineError, match=r"manifest-00000001.json is damaged"):
        job.archive(root, path=log.root)
    manifest.unlink()
    with pytest.raises(PipelineError, match=r"manifest-00000001.json is missing: restore it"):
        job.archive(root, path=log.root)
    pointer.write_text("{")
    with pytest.raises(PipelineError, match=r"current.json is damaged"):
        job.archive(root, path=log.root)


def test_files_behind_pyarrow_do_the_same(
    log: WrittenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "archive"
    files = RemoteFiles(root.as_uri())

    assert run(log, root, monkeypatch, files).rows == MESSAGES
    assert run(log, root, monkeypatch, files).rows == 0
    assert plain_offsets(root) == log.offsets
