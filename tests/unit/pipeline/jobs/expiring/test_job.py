"""The job ``expire``: old messages go, and neither archive nor audit misses them."""

from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.jobs.archiving.catalog import INTENT_FILE, Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles
from rockhopper.pipeline.jobs.results import UsageProblem
from tests.support.mortal_files import Killed, Mortal, committed_offsets, plain_offsets
from tests.support.peers import Clock
from tests.support.written_logs import T0_MS, WrittenLog

DAY_MS = 86_400_000
OLD: dict[str, Any] = {"older_than_ms": 2 * DAY_MS, "now_ms": lambda: T0_MS + 4 * DAY_MS}


def archived(tmp_path: Path, name: str = "a") -> tuple[WrittenLog, Path]:
    """Six messages of one day, six of three days later; two runs."""
    log, root = WrittenLog(tmp_path / f"store-{name}"), tmp_path / f"archive-{name}"
    for day in (0, 3):
        log.add(6, store_time_ms=T0_MS + day * DAY_MS)
        jobs.archive(root, path=log.root)
    return log, root


def test_what_is_old_goes_and_is_not_fetched_again(tmp_path: Path) -> None:
    log, root = archived(tmp_path)

    foretold = jobs.expire(root, **OLD, dry_run=True)
    assert committed_offsets(root) == log.offsets
    result = jobs.expire(root, **OLD)

    assert (result.messages, result.files, result.run) == (6, 3, 3)
    assert (foretold.messages, foretold.bytes, foretold.run) == (6, result.bytes, None)
    assert [each.topic for each in result.topics] == ["topic-0", "topic-1", "topic-2"]
    assert plain_offsets(root) == committed_offsets(root) == log.offsets[6:]
    assert jobs.expire(root, **OLD).run is None
    assert jobs.archive(root, path=log.root).rows == 0
    log.add(3, store_time_ms=T0_MS + 3 * DAY_MS)
    assert jobs.archive(root, path=log.root).rows == 3


def test_an_audit_does_not_miss_it_and_misses_the_rest(tmp_path: Path) -> None:
    log, root = archived(tmp_path)
    log.add(6, topic="topic-0", queue_id=0, store_time_ms=T0_MS)  # old, in the midst of a queue
    jobs.archive(root, path=log.root)
    log.add(6, topic="topic-0", queue_id=0, store_time_ms=T0_MS + 3 * DAY_MS)
    jobs.archive(root, path=log.root)
    jobs.expire(root, **OLD)

    audit = jobs.audit(str(log.root), archive=str(root), checks=["archive"])
    assert (audit.findings, audit.archived_and_in_log_count) == ([], 12)

    kept = Catalog(LocalFiles(root)).archived_files()[0]
    (root / kept.path).unlink()
    assert jobs.audit(str(log.root), archive=str(root), checks=["archive"]).findings


def test_only_whole_files_of_the_topics_that_are_named(tmp_path: Path) -> None:
    _, root = archived(tmp_path)

    assert jobs.expire(root, **OLD, topics=["topic-1"]).messages == 2
    assert len(committed_offsets(root)) == 10
    young = tmp_path / "young"
    jobs.archive(young, path=WrittenLog(tmp_path / "other").add(6).root)
    # Each file has messages of both sides.
    assert jobs.expire(young, older_than_ms=1, now_ms=lambda: T0_MS + 4).run is None
    with pytest.raises(UsageProblem, match="has no topic 'topic-9'"):
        jobs.expire(root, **OLD, topics=["topic-9"])
    with pytest.raises(UsageProblem, match="give --older-than"):
        jobs.expire(root, older_than_ms=0)


@pytest.mark.costly
def test_a_run_that_is_killed_at_any_step_is_completed_or_cleared_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        log, root = archived(tmp_path, str(number))
        mortal = Mortal(LocalFiles(root), number)
        with monkeypatch.context() as patch:
            patch.setattr("rockhopper.pipeline.jobs.kept_archives.files_at", lambda _: mortal)  # noqa: B023
            try:
                jobs.expire(root, **OLD, keep_old_ms=0)
                break
            except Killed:
                pass
        assert committed_offsets(root) in (log.offsets, log.offsets[6:]), mortal.steps
        left = jobs.archive(root, path=log.root)
        assert left.rows == 0
        assert committed_offsets(root) == plain_offsets(root), mortal.steps
        assert committed_offsets(root) in (log.offsets, log.offsets[6:])
        assert not (root / INTENT_FILE).exists()
        jobs.expire(root, **OLD, keep_old_ms=0)
        assert committed_offsets(root) == plain_offsets(root) == log.offsets[6:]
    else:
        pytest.fail("the run had more steps than were tried")
    assert number > 6


def own_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "_rockhopper").glob("*.json"))


@pytest.mark.costly
def test_manifests_of_what_has_expired_do_not_pile_up(tmp_path: Path) -> None:
    log, root = WrittenLog(tmp_path / "store"), tmp_path / "archive"
    sizes = []
    for day in range(12):
        log.add(6, store_time_ms=T0_MS + day * DAY_MS)
        jobs.archive(root, path=log.root)
        clock = Clock(T0_MS + (day + 2) * DAY_MS)
        jobs.expire(root, older_than_ms=DAY_MS, now_ms=clock, keep_old_ms=0)
        sizes.append(sum(path.stat().st_size for path in (root / "_rockhopper").glob("*.json")))

    assert committed_offsets(root) == []
    assert own_files(root) == ["base-00000024.json", "current.json", "manifest-00000024.json"]
    assert max(sizes[4:]) < 1.2 * min(sizes[4:])
    Catalog(LocalFiles(root)).check_whole()
    assert jobs.archive(root, path=log.root).rows == 0
    assert jobs.audit(str(log.root), archive=str(root), checks=["archive"]).findings == []


def test_an_audit_compares_with_what_was_folded(tmp_path: Path) -> None:
    """The sums of what has expired are kept, and tell whether the log still has that."""
    log, root = archived(tmp_path)
    jobs.expire(root, **OLD, keep_old_ms=0)
    jobs.expire(root, **OLD)
    assert any(name.startswith("base-") for name in own_files(root))

    audit = jobs.audit(str(log.root), archive=str(root), checks=["archive"])
    assert (audit.findings, audit.archived_and_in_log_count) == ([], 6)


def test_folding_may_be_killed_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):  # more steps than it has
        log, root = archived(tmp_path, f"fold-{number}")
        jobs.expire(root, **OLD, keep_old_ms=0)
        mortal: Any = Mortal(LocalFiles(root), number)
        catalog = Catalog(mortal)
        catalog.delete_replaced(T0_MS + 9 * DAY_MS)
        try:
            catalog.fold()
            break
        except Killed:
            pass
        assert committed_offsets(root) == log.offsets[6:]
        whole = Catalog(LocalFiles(root))
        whole.check_whole()
        whole.fold()
        assert own_files(root) == ["base-00000003.json", "current.json", "manifest-00000003.json"]
        assert committed_offsets(root) == log.offsets[6:]
    else:
        raise AssertionError("folding has more steps than were tried")


def test_a_reader_that_began_before_folding_reads_on(tmp_path: Path) -> None:
    _, root = archived(tmp_path)
    jobs.expire(root, **OLD, keep_old_ms=0)

    class Folding(LocalFiles):
        """Folds once the pointer was read."""

        is_done = False

        def read(self, name: str) -> bytes | None:
            data = super().read(name)
            if not self.is_done and name.endswith("00000003.json"):
                self.is_done = True
                keeper = Catalog(LocalFiles(root))
                keeper.delete_replaced(T0_MS + 9 * DAY_MS)
                keeper.fold()
            return data

    assert [each.run for each in Catalog(Folding(root)).manifests()] == [3]
