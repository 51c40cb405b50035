"""An archive that somebody else has written leads nowhere but into its own directory."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline import jobs
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.catalog import CURRENT_FILE, INTENT_FILE, LOCK_FILE
from tests.support.written_logs import T0_MS, WrittenLog

DAY_MS = 86_400_000
MANIFEST = "_rockhopper/manifest-00000001.json"
OUTSIDE = ["../treasure", "topic=t/../../treasure", "/treasure", "topic=t//treasure", ""]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    log = WrittenLog(tmp_path / "store").add(6)
    jobs.archive(tmp_path / "archive", path=log.root)
    (tmp_path / "treasure").write_text("kept")
    return tmp_path / "archive"


def held(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def expire(root: Path) -> Any:
    return jobs.expire(root, older_than_ms=DAY_MS, keep_old_ms=0, now_ms=lambda: T0_MS + 9 * DAY_MS)


JOBS: list[Callable[[Path], Any]] = [
    expire,
    lambda root: jobs.compact(root, keep_old_ms=0),
    lambda root: jobs.archive(root, path=root.parent / "store"),
    lambda root: jobs.replay(root, nameserver="127.0.0.1:1"),
    lambda root: jobs.search(archive=str(root), contains="x"),
    lambda root: jobs.audit(path=str(root.parent / "store"), archive=str(root)),
]


def check_refused(root: Path, words: str, run: Callable[[Path], Any] = expire) -> None:
    before = held(root.parent)
    with pytest.raises(PipelineError, match=words):
        run(root)
    assert held(root.parent) == before


def rewrite(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document))


def write_intent(root: Path, change: Callable[[Any], None]) -> None:
    """What a run that was killed leaves: it brings a file, and takes another away."""
    manifest = json.loads((root / MANIFEST).read_bytes())
    file = dict(manifest["files"][0], path="topic=t/date=2026-11-20/part-00002-00000-0.parquet")
    staged = "_rockhopper/staging/run-00000002/x.parquet"
    (root / staged).parent.mkdir(parents=True)
    (root / staged).write_bytes((root / manifest["files"][0]["path"]).read_bytes())
    manifest |= {
        "run": 2,
        "files": [file],
        "removed": [],
        "source": {"kind": "compact", "keepOldMs": 0},
    }
    document = {"manifest": manifest, "staged": [staged]}
    change(document)
    (root / INTENT_FILE).write_text(json.dumps(document))


@pytest.mark.parametrize("run", JOBS)
def test_a_manifest_with_a_path_outside_is_refused_by_every_job(
    root: Path, run: Callable[[Path], Any]
) -> None:
    rewrite(root / MANIFEST, lambda one: one["files"][0].update(path="../treasure"))
    check_refused(root, "manifest-00000001.json is damaged .*treasure", run)


@pytest.mark.parametrize("path", [*OUTSIDE, "_rockhopper/current.json"])
def test_no_path_of_a_manifest_leads_outside(root: Path, path: str) -> None:
    before = (root / MANIFEST).read_bytes()
    rewrite(root / MANIFEST, lambda one: one["files"][0].update(path=path))
    check_refused(root, "is damaged")
    (root / MANIFEST).write_bytes(before)
    rewrite(root / MANIFEST, lambda one: one["removed"].append(path))
    check_refused(root, "is damaged")


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_of_an_intent_leads_outside(root: Path, path: str) -> None:
    changes: list[Callable[[Any], None]] = [
        lambda one: one.update(staged=[path]),
        lambda one: one["manifest"]["files"][0].update(path=path),
        lambda one: one["manifest"].update(removed=[path]),
    ]
    for number, change in enumerate(changes):
        if number == 0:
            write_intent(root, change)
        else:
            (root / INTENT_FILE).unlink()
            (root / "_rockhopper/staging/run-00000002/x.parquet").unlink()
            (root / "_rockhopper/staging/run-00000002").rmdir()
            write_intent(root, change)
        check_refused(root, "intent.json is damaged")


def test_an_intent_moves_only_what_is_staged(root: Path) -> None:
    write_intent(root, lambda one: one.update(staged=[CURRENT_FILE]))
    check_refused(root, "intent.json is damaged .*staging")


def test_an_intent_is_refused_before_it_moves_anything_if_another_manifest_leads_outside(
    root: Path,
) -> None:
    write_intent(root, lambda _: None)
    rewrite(root / MANIFEST, lambda one: one["files"][0].update(path="../treasure"))
    check_refused(root, "manifest-00000001.json is damaged")


@pytest.mark.parametrize("name", ["../treasure", "/treasure", "intent.json", "x/manifest-1.json"])
def test_the_pointer_names_a_manifest(root: Path, name: str) -> None:
    (root / CURRENT_FILE).write_text(json.dumps({"manifest": name}))
    check_refused(root, "current.json is damaged")


def test_links_out_of_the_archive_are_not_followed(root: Path) -> None:
    treasure = root.parent / "treasure"
    lock = root / LOCK_FILE
    lock.unlink()
    lock.symlink_to(treasure)
    check_refused(root, "symbolic link")
    lock.unlink()
    home = root.parent / "home"
    home.mkdir()
    (home / "part-0.parquet").write_bytes(b"kept")
    (root / "topic=out").symlink_to(home)
    rewrite(root / MANIFEST, lambda one: one["files"][0].update(path="topic=out/part-0.parquet"))
    check_refused(root, "symbolic link")


def test_what_else_stands_where_replaced_files_are_kept_is_left_alone(root: Path) -> None:
    (root / "_rockhopper/replaced/run-x").mkdir(parents=True)
    assert expire(root).run == 2
    assert (root / "_rockhopper/replaced/run-x").exists()
