"""DelayJournal: what was about to be delivered is told after a crash, and forgotten in time."""

from pathlib import Path

from broker.delay_journal import DelayJournal, Pass


def test_passes_of_this_and_the_last_period_are_told(tmp_path: Path) -> None:
    journal = DelayJournal(tmp_path)
    assert journal.open() == []
    for number in range(3):
        journal.note(Pass(3, number, number + 1, 100 * number))
        journal.turn()
    journal.close()
    again = DelayJournal(tmp_path)
    assert sorted(again.open()) == [Pass(3, 2, 3, 200)]
    again.clear()
    again.close()
    assert [path.stat().st_size for path in tmp_path.iterdir()] == [0, 0]


def test_a_period_without_deliveries_keeps_what_is_known(tmp_path: Path) -> None:
    journal = DelayJournal(tmp_path)
    journal.open()
    journal.note(Pass(1, 0, 1, 0))
    journal.turn()
    journal.note(Pass(1, 1, 2, 50))
    journal.close()
    again = DelayJournal(tmp_path)
    assert sorted(again.open()) == [Pass(1, 0, 1, 0), Pass(1, 1, 2, 50)]
    again.close()


def test_a_torn_note_is_left_out(tmp_path: Path) -> None:
    journal = DelayJournal(tmp_path)
    journal.open()
    journal.note(Pass(1, 0, 1, 0))
    journal.close()
    with (tmp_path / "journal.0").open("ab") as file:
        file.write(b"torn")
    again = DelayJournal(tmp_path)
    assert again.open() == [Pass(1, 0, 1, 0)]
    again.close()
