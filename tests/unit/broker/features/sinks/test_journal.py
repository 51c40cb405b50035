"""What sinks remember: any damage is repaired from the second copy, or refused with a sentence."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.features.sinks.journal import Intent, SinkJournal
from rockhopper.broker.store.files.errors import CorruptFileError
from tests.support.rot import flipped

PUBLISHED = {"orders-by-day": (41, 1000), "x": (0, 3)}
INTENT = Intent("orders-by-day", 42, 7, ["a.part", "b.part"], 12_345)


@pytest.fixture
def journal(tmp_path: Path) -> SinkJournal:
    journal = SinkJournal(tmp_path)
    journal.save_published({"x": (0, 3)})
    journal.save_published(PUBLISHED)
    journal.save_intent(INTENT)
    return journal


@pytest.mark.parametrize("name", ["published.json", "published.json.bak", "intent.json"])
def test_any_flipped_bit_and_any_cut_is_mended(
    tmp_path: Path, journal: SinkJournal, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda _: None)
    path = tmp_path / name
    data = path.read_bytes()
    # Every 13th, so that all bits of a byte are met: all of them take half a minute.
    damages = [flipped(data, bit) for bit in range(0, len(data) * 8, 13)]
    damages += [data[:size] for size in range(0, len(data), 13)]
    with capture_logs() as logs:
        for damage in damages:
            path.write_bytes(damage)
            assert journal.load_published() == PUBLISHED, damage
            assert journal.load_intent() == INTENT, damage
    assert {entry["file"] for entry in logs} == {str(tmp_path / name)}
    named = [entry for entry in logs if entry["log_level"] == "warning"]
    assert len(named) >= len(damages)


@pytest.mark.parametrize(
    "damage", [b"", b"{}", b"\0" * 50, b'{"x":[4', b'{"entries":{},"crc32":1}']
)
def test_a_damage_of_both_copies_is_refused(
    tmp_path: Path, journal: SinkJournal, damage: bytes
) -> None:
    for name in ("intent.json", "intent.json.bak"):
        (tmp_path / name).write_bytes(damage)
    with pytest.raises(CorruptFileError, match="compare the last batch of each sink"):
        journal.load_intent()
    if damage == b"{}":
        return
    for name in ("published.json", "published.json.bak"):
        (tmp_path / name).write_bytes(damage)
    with pytest.raises(CorruptFileError, match=r"published\.json: it cannot be read"):
        journal.load_published()


def test_the_copies_are_alike_after_a_start(tmp_path: Path, journal: SinkJournal) -> None:
    """A kill between the two leaves the older one as the second, which must not count later."""
    older = tmp_path / "published.json.bak"
    journal.save_published({"orders-by-day": (40, 1)})
    stale = older.read_bytes()
    journal.save_published(PUBLISHED)
    older.write_bytes(stale)
    assert journal.load_published() == PUBLISHED
    (tmp_path / "published.json").write_bytes(b"damaged")
    assert journal.load_published() == PUBLISHED


@pytest.mark.parametrize("name", ["published.json", "published.json.bak"])
@pytest.mark.parametrize("older", [None, b"{}"])
def test_an_older_copy_forgets_no_batch(
    tmp_path: Path, journal: SinkJournal, name: str, older: bytes | None
) -> None:
    before = (tmp_path / name).read_bytes() if older is None else older
    journal.save_published(PUBLISHED | {"x": (1, 4), "y": (0, 1)})
    (tmp_path / name).write_bytes(before)
    assert journal.load_published() == PUBLISHED | {"x": (1, 4), "y": (0, 1)}
    assert (tmp_path / name).read_bytes() != before
    assert journal.load_published() == PUBLISHED | {"x": (1, 4), "y": (0, 1)}


def test_files_of_early_builds_are_read_and_get_a_checksum(tmp_path: Path) -> None:
    journal = SinkJournal(tmp_path)
    (tmp_path / "published.json").write_bytes(b'{"orders-by-day":[41,1000],"x":[0,3]}')
    (tmp_path / "intent.json").write_bytes(
        b'{"sinkId":"orders-by-day","batchId":42,"messageCount":7,'
        b'"parts":["a.part","b.part"],"fromOffset":12345}'
    )
    assert journal.load_published() == PUBLISHED
    assert journal.load_intent() == INTENT
    assert b"crc32" in (tmp_path / "published.json").read_bytes()
    assert (tmp_path / "intent.json.bak").exists()


def test_nothing_is_left_of_a_finished_batch(tmp_path: Path, journal: SinkJournal) -> None:
    (tmp_path / "a.part").touch()
    journal.finish([tmp_path / "a.part"])
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "published.json",
        "published.json.bak",
    ]
    assert journal.load_intent() is None
    assert SinkJournal(tmp_path / "new").load_published() == {}
