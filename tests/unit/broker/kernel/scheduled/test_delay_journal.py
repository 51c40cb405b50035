"""DelayJournal: what was about to be delivered is told after a crash, and forgotten in time."""

import struct
from pathlib import Path

from rockhopper.broker.kernel.scheduled.delay_journal import DelayJournal, Pass
from tests.support.rot import flipped


def opened(root: Path) -> tuple[DelayJournal, list[Pass]]:
    journal = DelayJournal(root / "delay", root / "quarantine")
    return journal, sorted(journal.open())


def told(root: Path) -> list[Pass]:
    journal, passes = opened(root)
    journal.close()
    return passes


def test_a_pass_is_told_until_a_saved_file_holds_it(tmp_path: Path) -> None:
    journal, passes = opened(tmp_path)
    assert passes == []
    notes = [Pass(3, number, number + 1, 100 * number) for number in range(3)]
    for about in notes:
        assert journal.note(about)
        journal.turn(about.log_end + 50)
    assert told(tmp_path) == notes
    journal.forget(149)
    assert told(tmp_path) == notes[1:]
    journal.note(Pass(3, 3, 4, 300))
    journal.forget(250)
    assert told(tmp_path) == [Pass(3, 3, 4, 300)]
    journal.close()


def test_a_period_without_deliveries_begins_no_file(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    for end in range(5):
        journal.turn(end)
        journal.forget(end)
    assert not (tmp_path / "delay").exists()
    journal.note(Pass(1, 0, 1, 0))
    for end in range(5):
        journal.turn(end)
    assert len(list((tmp_path / "delay").iterdir())) == 2
    journal.close()


def test_any_flipped_bit_is_mended_and_a_cut_tells_what_is_in_front(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path)
    notes = [Pass(level, 5, 9, 1000 + level) for level in range(1, 4)]
    for about in notes:
        journal.note(about)
    journal.close()
    (path,) = (tmp_path / "delay").iterdir()
    data = path.read_bytes()
    for bit in range(0, len(data) * 8, 37):
        damaged = flipped(data, bit)
        path.write_bytes(damaged)
        assert told(tmp_path) == notes, bit
        assert path.read_bytes() == data
    for size_bytes in range(0, len(data), 7):
        path.write_bytes(data[:size_bytes])
        count = (size_bytes + len(data) // 6) // (len(data) // 3)
        assert told(tmp_path) == notes[:count], size_bytes


def test_notes_of_early_builds_are_told_until_a_saved_file_holds_them(tmp_path: Path) -> None:
    notes = [Pass(1, 0, 1, 0), Pass(2, 1, 2, 50)]
    (tmp_path / "delay").mkdir()
    for name, about in zip(("journal.0", "journal.1"), notes, strict=True):
        (tmp_path / "delay" / name).write_bytes(struct.pack(">qqqq", *about) + b"torn")
    journal, passes = opened(tmp_path)
    assert passes == notes
    journal.turn(100)
    journal.forget(99)
    assert told(tmp_path) == notes
    journal.forget(100)
    assert told(tmp_path) == []
    journal.close()
