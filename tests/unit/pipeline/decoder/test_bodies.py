"""Bodies: decompressed where that is wanted, whole batches bounded, damage seen."""

import zlib
from pathlib import Path

import numpy as np
import pytest

from rockhopper.pipeline.decoder import bodies
from rockhopper.pipeline.decoder.bodies import Bodies, body_crcs, damaged_bodies, damaged_records
from rockhopper.pipeline.decoder.records import Records, read_records
from rockhopper.pipeline.decoder.walk import walk
from rockhopper.protocol.store.message_codec.record import body_crc
from rockhopper.protocol.store.record_head import FLAG_AT
from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED
from tests.support import golden_stores
from tests.support.records import encode_message

PLAIN = [b"first", b"x" * 1000, b"", b"last"]


def records(*stored: tuple[bytes, int]) -> Records:
    encoded = [encode_message(topic="T", body=body, sys_flag=flag) for body, flag in stored]
    starts = np.cumsum([0, *map(len, encoded[:-1])])
    return read_records(np.frombuffer(b"".join(encoded), np.uint8).copy(), starts)


def compressed(body: bytes) -> tuple[bytes, int]:
    return zlib.compress(body), SYS_FLAG_COMPRESSED


def test_bodies_are_as_they_were_sent() -> None:
    found = records((PLAIN[0], 0), compressed(PLAIN[1]), (PLAIN[2], 0), compressed(PLAIN[3]))
    assert Bodies(found, is_wanted=True).as_array(found).to_pylist() == PLAIN


def test_without_a_wish_for_it_nothing_is_decompressed() -> None:
    stored = compressed(PLAIN[1])
    found = records(stored)
    assert Bodies(found, is_wanted=False).as_array(found).to_pylist() == [stored[0]]


def test_a_body_that_does_not_decompress_is_named_and_stays_as_it_is() -> None:
    found = records((b"not zlib", SYS_FLAG_COMPRESSED), compressed(b"good"))
    made = Bodies(found, is_wanted=True)
    assert list(made.failures) == [0]
    assert made.as_array(found).to_pylist() == [b"not zlib", b"good"]


def test_a_batch_ends_before_it_becomes_too_big(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BATCH_SIZE_BYTES_MAX", 2500)
    found = records(*[compressed(b"x" * 1000)] * 5)
    made = Bodies(found, is_wanted=True)
    assert made.count == 2
    assert made.as_array(found).to_pylist() == [b"x" * 1000] * 2


def test_one_body_that_is_too_big_is_a_batch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BATCH_SIZE_BYTES_MAX", 10)
    found = records(compressed(b"x" * 1000), (b"y", 0), compressed(b"z" * 1000))
    assert Bodies(found, is_wanted=True).count == 2


def test_crcs_are_those_that_are_stored_until_a_body_rots() -> None:
    found = records((b"first", 0), (b"", 0), (b"last", 0))
    assert body_crcs(found).tolist() == [body_crc(b"first"), 0, body_crc(b"last")]
    assert damaged_bodies(found).tolist() == [False, False, False]
    found.data[found.body_start[2]] ^= 1
    assert damaged_bodies(found).tolist() == [False, False, True]


def test_records_that_end_with_a_crc_of_their_own(tmp_path: Path) -> None:
    root = golden_stores.copy_golden_store("crcprop", tmp_path / "store")
    (segment,) = (root / "commitlog").iterdir()
    data = np.frombuffer(segment.read_bytes(), np.uint8).copy()
    found = read_records(data, walk(data.tobytes(), 0, len(data)).offsets)
    assert damaged_records(found) == []
    data[found.offsets[1] + FLAG_AT] ^= 1
    assert damaged_records(found) == [1]
    assert damaged_records(records((b"plain", 0))) == []
