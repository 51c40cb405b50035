"""A batch of a sink is published once and whole, wherever the broker is killed.

A kill -9 leaves the files as they are. So the store is copied before and after each step that
changes a file of the sinks or the log, and each copy is opened as the next process would.
"""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.store.files import disk
from rockhopper.broker.store.log.commit_log import CommitLog
from tests.support.killed_store import copy_killed
from tests.support.open_stores import bodies, put
from tests.support.sink_rig import WHOLE, Sinks


def snapshots(root: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Copy the tree around every step from now on; the list grows.

    Steps of the flush thread and of the loop take turns, or a copy would hold half of either.
    """
    taken: list[Path] = []
    turn = threading.RLock()

    def shoot() -> None:
        taken.append(to / f"{len(taken):03d}")
        copy_killed(root, taken[-1])

    def around(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            with turn:
                shoot()
                result = step(*arguments, **named)
                shoot()
            return result

        return run

    for name in ("write_atomically", "remove_files", "sync_file"):
        monkeypatch.setattr(disk, name, around(getattr(disk, name)))
    monkeypatch.setattr(
        "rockhopper.broker.features.sinks.publisher.remove_files", around(disk.remove_files)
    )
    monkeypatch.setattr(CommitLog, "_pwrite", around(CommitLog._pwrite))
    return taken


@pytest.mark.costly
async def test_a_kill_at_any_step_leaves_a_batch_that_comes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A kill takes nothing that was written: no need to wait for the disk.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    root = tmp_path / "store"
    async with Sinks(root) as sinks:
        await sinks.run_batch(0)
        put(sinks.store, b"between")
        sinks.stage(1)
        with monkeypatch.context() as patch:
            taken = snapshots(root, tmp_path, patch)
            await sinks.publish(1)
        assert bodies(sinks.store) == [*WHOLE, b"between", *WHOLE]
    assert len(taken) > 10
    partial = 0
    last: dict[Path, bytes] = {}
    for copy in taken:
        files = {
            path.relative_to(copy): path.read_bytes() for path in copy.rglob("*") if path.is_file()
        }
        if files == last:  # behind a step and in front of the next
            continue
        last = files
        async with Sinks(copy) as again:
            seen = bodies(again.store)
            assert seen in ([*WHOLE, b"between"], [*WHOLE, b"between", *WHOLE])
            partial += len(seen) > len(WHOLE) + 1
            await again.run_batch(1)
            assert bodies(again.store) == [*WHOLE, b"between", *WHOLE]
            assert (await again.publish(1))[1]
        shutil.rmtree(copy)
    assert partial > 3
