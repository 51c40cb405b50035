"""What a store held is set aside whole, also when that is stopped in the middle."""

from pathlib import Path

import pytest

from rockhopper.broker.replication.roles import setting_aside
from rockhopper.broker.replication.roles.setting_aside import set_aside
from rockhopper.broker.settings.store_layout import StoreLayout


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    found = StoreLayout(tmp_path)
    for path in ("commitlog/0", "consumequeue/T/0/0", "config/topics.json", "lock", "abort"):
        write(tmp_path / path)
    for path in ("ha/promise.json", "pop/journal", "quarantine/tail"):
        write(found.own / path)
    return found


def write(path: Path, text: str = "first") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_everything_goes_but_the_replicas_own_notes(layout: StoreLayout) -> None:
    kept = set_aside(layout)
    assert names(layout.root) == {"lock", layout.own.name}
    assert names(layout.own) == {"ha", "quarantine", kept.name}
    assert names(kept) == {"abort", "commitlog", "config", "consumequeue", layout.own.name}
    assert (kept / layout.own.name / "pop" / "journal").read_text() == "first"


def test_the_next_one_takes_its_place(layout: StoreLayout) -> None:
    set_aside(layout)
    write(layout.commit_log / "0", "second")
    kept = set_aside(layout)
    assert (kept / "commitlog" / "0").read_text() == "second"
    assert "config" not in names(kept)


def test_one_that_was_stopped_goes_on(layout: StoreLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Path] = []
    move = setting_aside._move

    def stop_at_second(path: Path, target: Path) -> None:
        if len(moved) == 2:
            raise OSError("the disk is full")
        moved.append(path)
        move(path, target)

    monkeypatch.setattr(setting_aside, "_move", stop_at_second)
    with pytest.raises(OSError, match="full"):
        set_aside(layout)
    monkeypatch.setattr(setting_aside, "_move", move)
    kept = set_aside(layout)
    assert names(kept) == {"abort", "commitlog", "config", "consumequeue", layout.own.name}
    assert (kept / "abort").read_text() == "first"
