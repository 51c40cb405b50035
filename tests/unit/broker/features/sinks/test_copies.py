"""Parts and intents of sinks that come from a master."""

from pathlib import Path

import pytest

from rockhopper.broker.features.sinks.copies import SinkCopies, pieces_of_parts
from rockhopper.broker.features.sinks.journal import SinkJournal
from rockhopper.broker.features.sinks.staged_parts import sink_key
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    StateRecordError,
    encode_part,
)

INTENT = b'{"sinkId":"s","batchId":3,"messageCount":2,"parts":["a.part","b.part"],"fromOffset":17}'


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "sinks"


def test_parts_come_in_pieces_and_again(tmp_path: Path, directory: Path) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(bytes(PIECE_SIZE_BYTES) + b"rest")
    pieces = list(pieces_of_parts([part]))
    assert len(pieces) == 2
    copies = SinkCopies(directory)
    for _, payload in [*pieces, *pieces]:
        copies.take_part(payload)
    assert (directory / "a.part").read_bytes() == part.read_bytes()


@pytest.mark.parametrize("name", ["../a.part", "intent.json"])
def test_only_parts_are_written(directory: Path, name: str) -> None:
    with pytest.raises(StateRecordError, match="is no name of a part"):
        SinkCopies(directory).take_part(encode_part(name, 0, b"x"))


def test_an_intent_stays_until_its_batch_is_published(directory: Path) -> None:
    copies, journal = SinkCopies(directory), SinkJournal(directory)
    copies.take_part(encode_part("a.part", 0, b"x"))
    copies.take_intent(INTENT)
    copies.take_published(b'{"s":[2,9],"other":[8,1]}')
    intent = journal.load_intent()
    assert intent is not None
    assert intent.from_offset == 17
    copies.take_published(b'{"s":[3,2]}')
    assert journal.load_intent() is None
    assert journal.load_published() == {"s": (3, 2), "other": (8, 1)}
    assert not list(directory.glob("*.part"))


def test_prepared_parts_go_when_their_batch_is_published(directory: Path) -> None:
    copies, key = SinkCopies(directory), sink_key("s")
    for name in (f"{key}-2-0.1.part", f"{key}-3-0.1.part", f"{sink_key('t')}-2-0.1.part"):
        copies.take_part(encode_part(name, 0, b"x"))
    copies.take_published(b'{"s":[2,9]}')
    left = {path.name.split("-", 1)[1] for path in directory.glob("*.part")}
    assert left == {"3-0.1.part", "2-0.1.part"}
    assert not list(directory.glob(f"{key}-2-*"))


def test_an_intent_that_makes_no_sense_is_refused(directory: Path) -> None:
    with pytest.raises(StateRecordError, match="intent"):
        SinkCopies(directory).take_intent(b'{"sinkId":1}')
