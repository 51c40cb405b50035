"""Every point of a backup can be reached, by its number and by its time."""

from pathlib import Path

import pytest

from rockhopper.broker.tools.dumping import DumpSelection, dump
from rockhopper.broker.tools.repair.backing_up import Backup
from rockhopper.broker.tools.repair.choosing import choose
from rockhopper.broker.tools.store_view import StoreView
from tests.support import open_stores, tool_stores
from tests.support.peers import Clock
from tests.support.tool_stores import run


def _back_up(root: Path, target: Path, now_ms: int) -> None:
    Backup(target).run_locked(StoreView(root), now_ms, lambda offset: None)


def _grow(root: Path, clock: Clock, count: int, first: int) -> None:
    store = open_stores.open_store(root, clock)
    tool_stores.fill(store, clock, count, first)
    open_stores.close(store)


def _bodies(root: Path) -> list[object]:
    return [each["body"] for each in dump(StoreView(root), DumpSelection())]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def forked(tmp_path: Path, clock: Clock) -> Path:
    """A backup of 3 points of a store, then 2 of one that was restored from the first of them."""
    root, target = tmp_path / "store", tmp_path / "backup"
    for first in (0, 30, 60):
        _grow(root, clock, 30, first)
        _back_up(root, target, clock())
        clock.advance(1000)
    assert run("restore", target, tmp_path / "r1", "--point", 1, "--write").code == 0
    _back_up(tmp_path / "r1", target, clock())
    clock.advance(1000)
    _grow(tmp_path / "r1", clock, 30, 200)
    _back_up(tmp_path / "r1", target, clock())
    return target


def test_a_time_before_a_restore_is_of_the_line_that_was_served_then(
    forked: Path, tmp_path: Path
) -> None:
    points = Backup(forked).manifest.points
    assert [point.line for point in points] == [1, 1, 1, 2, 2]
    between = points[1].time_ms + 1
    choice = choose(Backup(forked), None, between)
    assert (choice.tables.number, choice.log.number) == (2, 3)
    assert run("restore", forked, tmp_path / "two", "--to", between, "--write").code == 0
    assert _bodies(tmp_path / "two") == [f"body {number}" for number in range(60)]
    shown = run("restore", forked, tmp_path / "new", "--to", between).out
    assert "Would restore point 3 with the tables of point 2, up to the message of" in shown
    assert "The newest points, up to 5, belong to another line" in shown


def test_around_a_restore_the_new_line_counts_once_it_has_a_message(
    forked: Path, tmp_path: Path
) -> None:
    points = Backup(forked).manifest.points
    own_ms = (
        int(run("restore", forked, tmp_path / "new", "--json").objects[0]["lastTime"]) - 29 * 40
    )
    # The restored store had nothing of its own yet: the other one has more.
    assert choose(Backup(forked), None, points[2].time_ms + 1).log.number == 3
    assert choose(Backup(forked), None, own_ms + 1).log.number == 5
    for number in range(1, 6):
        new = tmp_path / f"p{number}"
        assert run("restore", forked, new, "--point", number, "--write").code == 0
        count = [30, 60, 90, 30, 60][number - 1]
        assert len(_bodies(new)) == count


def test_a_time_between_two_lines_without_a_message_of_its_own(
    tmp_path: Path, clock: Clock
) -> None:
    root, target = tmp_path / "store", tmp_path / "backup"
    _grow(root, clock, 30, 0)
    _back_up(root, target, clock())
    assert run("restore", target, tmp_path / "r1", "--write").code == 0
    _grow(root, clock, 30, 30)
    _back_up(root, target, clock())
    before_ms = clock() + 500
    clock.advance(1000)
    _grow(tmp_path / "r1", clock, 30, 200)
    own_ms = clock() - 29 * 40
    _back_up(tmp_path / "r1", target, clock())
    assert choose(Backup(target), None, before_ms).log.number == 2
    assert choose(Backup(target), None, own_ms).log.number == 2
    assert choose(Backup(target), None, own_ms + 1).log.number == 3


def test_messages_that_expired_before_they_were_copied_leave_the_older_ones_reachable(
    tmp_path: Path, clock: Clock
) -> None:
    root, target = tmp_path / "store", tmp_path / "backup"
    _grow(root, clock, 10, 0)
    _back_up(root, target, clock())
    first_ms = clock()
    _grow(root, clock, 90, 10)
    for base in (0, 4096):
        (root / "commitlog" / f"{base:020d}").unlink()
    ended = run("backup", root, target, "--write")
    assert "expired before it was copied" in ended.out
    assert choose(Backup(target), None, first_ms).log.number == 1
    assert run("restore", target, tmp_path / "new", "--to", first_ms + 1, "--write").code == 0
    assert len(_bodies(tmp_path / "new")) == 10
    assert run("restore", target, tmp_path / "newest", "--write").code == 0
    assert _bodies(tmp_path / "newest") == _bodies(root)


def test_a_time_before_all_messages_is_refused(forked: Path, tmp_path: Path) -> None:
    for options in ((), ("--write",)):
        ended = run("restore", forked, tmp_path / "new", "--to", "2001-01-01", *options)
        assert ended.code == 1
        assert "no message from before 2001-01-01 00:00:00.000: the first one of point" in ended.err
    assert not (tmp_path / "new").exists()


def test_a_time_behind_the_last_point_is_warned_of(forked: Path, tmp_path: Path) -> None:
    for options in ((), ("--write",)):
        ended = run("restore", forked, tmp_path / "new", "--to", "2099-01-01", *options)
        assert ended.code == 0
        assert "The backup ends before that time: point 5 was made at" in ended.out
