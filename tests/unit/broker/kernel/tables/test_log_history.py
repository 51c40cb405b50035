"""LogHistory: epochs of the log, and up to where a reader's positions agree with it."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables import log_history
from rockhopper.broker.kernel.tables.log_history import CommonPast, LogHistory


def history(tmp_path: Path, *starts: int) -> LogHistory:
    made = LogHistory(tmp_path / "log-history.json")
    for start in starts:
        made.start_run(start)
    return made


def test_an_epoch_ends_where_the_first_of_the_later_ones_starts(tmp_path: Path) -> None:
    """The third began with a shorter log than the second."""
    epochs = history(tmp_path, 0, 900, 500, 700)
    newest, third, second, first = epochs.ids(9)
    assert epochs.compare([newest, third]) == CommonPast(newest, None)
    assert epochs.compare([third]) == CommonPast(third, 700)
    assert epochs.compare([second, first]) == CommonPast(second, 500)
    assert epochs.compare([first]) == CommonPast(first, 500)


def test_the_newest_epoch_counts_that_both_know(tmp_path: Path) -> None:
    """A backup has not seen what the reader read in afterwards."""
    epochs = history(tmp_path, 0, 900)
    newest, first = epochs.ids(2)
    assert epochs.compare(["read in later", first]) == CommonPast(first, 900)
    assert epochs.compare(["read in later", newest, first]) == CommonPast(newest, None)


def test_without_a_common_epoch_nothing_agrees(tmp_path: Path) -> None:
    assert history(tmp_path, 500).compare(["of another volume"]) == CommonPast(None, 0)


def test_a_run_that_continues_begins_no_epoch(tmp_path: Path) -> None:
    epochs = history(tmp_path)
    epochs.start_run(100, continues=True)
    first = epochs.ids(9)
    epochs.start_run(200, continues=True)
    assert epochs.ids(9) == first
    assert len(first) == 1
    assert epochs.start_offset == 200


def test_the_oldest_epochs_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_history, "EPOCHS_MAX", 3)
    epochs = history(tmp_path, 0, 100, 200)
    before = epochs.ids(9)
    epochs.start_run(300)
    assert epochs.ids(9)[1:] == before[:2]


async def test_epochs_are_kept_and_numbers_go_up(tmp_path: Path) -> None:
    epochs = history(tmp_path)
    epochs.start_saving()
    epochs.start_run(100)
    await epochs.saved()
    again = history(tmp_path)
    again.load()
    assert again.start_offset == 0
    again.start_run(50)
    assert again.ids(9)[1:] == epochs.ids(9)
    assert again.compare(epochs.ids(1)) == CommonPast(epochs.ids(1)[0], 50)


@pytest.mark.parametrize("entry", [7, [1, 2], [1, "2", 3], {"number": 1}])
def test_what_is_no_epoch_is_refused(tmp_path: Path, entry: object) -> None:
    written = LogHistory(tmp_path / "log-history.json")
    written.entries["id"] = entry
    with pytest.raises(ValueError, match="not a number"):
        LogHistory(tmp_path / "other.json").from_json(written.to_json())


def test_what_a_later_release_knows_of_an_epoch_stays_with_it(tmp_path: Path) -> None:
    later = history(tmp_path, 100)
    (first,) = later.ids(9)
    later.entries[first] += [{"by": "later"}, 4]
    document = later.to_json() | {"colour": {"a": [1]}}

    again = LogHistory(tmp_path / "other.json")
    again.from_json(document)
    again.start_run(200)

    written = again.to_json()
    assert written["entries"][first][3:] == [{"by": "later"}, 4]
    assert written["colour"] == {"a": [1]}
    assert again.compare([first]) == CommonPast(first, 200)
    LogHistory(tmp_path / "third.json").from_json(written)
