"""What a follower makes of the parts and intents of sinks that its master writes."""

from pathlib import Path

import pytest

from rockhopper.broker.features.sinks.journal import SinkJournal
from rockhopper.broker.features.sinks.staged_parts import sink_key
from rockhopper.broker.features.sinks.state import INTENT, PART, PUBLISHED, SinksState, encode_parts
from rockhopper.broker.kernel.state_records import (
    PIECE_SIZE_BYTES,
    StateRecordError,
    encode_numbers,
    encode_text,
)
from rockhopper.broker.server.loop.clock import BrokerClock
from rockhopper.broker.settings.store_layout import StoreLayout

NOTED_INTENT = (
    b'{"sinkId":"s","batchId":3,"messageCount":2,"parts":["a.part","b.part"],"fromOffset":17}'
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "rockhopper" / "sinks"


@pytest.fixture
def state(tmp_path: Path) -> SinksState:
    return SinksState(StoreLayout(tmp_path), BrokerClock())


def encode_part(name: str, position: int, data: bytes) -> bytes:
    return encode_text(name) + encode_numbers(position) + data


def test_parts_come_in_pieces_and_again(tmp_path: Path, directory: Path, state: SinksState) -> None:
    part = tmp_path / "a.part"
    part.write_bytes(bytes(PIECE_SIZE_BYTES) + b"rest")
    pieces = list(encode_parts([part]))
    assert len(pieces) == 2
    for payload in [*pieces, *pieces]:
        state.apply(PART, payload, 0)
    assert (directory / "a.part").read_bytes() == part.read_bytes()


@pytest.mark.parametrize("name", ["../a.part", "intent.json"])
def test_only_parts_are_written(state: SinksState, name: str) -> None:
    with pytest.raises(StateRecordError, match="is not a valid name of a part"):
        state.apply(PART, encode_part(name, 0, b"x"), 0)


def test_an_intent_stays_until_its_batch_is_published(directory: Path, state: SinksState) -> None:
    journal = SinkJournal(directory)
    state.apply(PART, encode_part("a.part", 0, b"x"), 0)
    state.apply(INTENT, NOTED_INTENT, 0)
    state.apply(PUBLISHED, b'{"s":[2,9],"other":[8,1]}', 0)
    intent = journal.load_intent()
    assert intent is not None
    assert intent.from_offset == 17
    state.apply(PUBLISHED, b'{"s":[3,2]}', 0)
    assert journal.load_intent() is None
    assert journal.load_published() == {"s": (3, 2), "other": (8, 1)}
    assert not list(directory.glob("*.part"))


def test_prepared_parts_go_when_their_batch_is_published(
    directory: Path, state: SinksState
) -> None:
    key = sink_key("s")
    for name in (f"{key}-2-0.1.part", f"{key}-3-0.1.part", f"{sink_key('t')}-2-0.1.part"):
        state.apply(PART, encode_part(name, 0, b"x"), 0)
    state.apply(PUBLISHED, b'{"s":[2,9]}', 0)
    left = {path.name.split("-", 1)[1] for path in directory.glob("*.part")}
    assert left == {"3-0.1.part", "2-0.1.part"}
    assert not list(directory.glob(f"{key}-2-*"))


def test_an_intent_that_makes_no_sense_is_refused(state: SinksState) -> None:
    with pytest.raises(StateRecordError, match="intent"):
        state.apply(INTENT, b'{"sinkId":1}', 0)
