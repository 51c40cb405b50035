"""A sysFlag that was changed in the log contradicts something else there."""

import zlib
from pathlib import Path
from typing import Any

import pytest

from rockhopper.protocol.sys_flags import SYS_FLAG_COMPRESSED_ZLIB
from tests.support import apache_golden
from tests.support.derived_stores import APACHE_GEOMETRY, audited, derive, write_store
from tests.support.written_logs import WrittenLog

SYS_FLAG_AT = 36
COMPRESSED: dict[str, Any] = {
    "sys_flag": SYS_FLAG_COMPRESSED_ZLIB,
    "body": zlib.compress(b"hay " * 2000),
}
COMMITTED: dict[str, Any] = {"sys_flag": 0x8, "prepared_transaction_offset": 700}
BATCH = {
    "sys_flag": 0xC0,
    "properties": {"INNER_NUM": "2", "INNER_BASE": "0"},
    "topic": "B",
    "queue_offset": 0,
}


def flipped(log: WrittenLog, number: int, bit: int) -> None:
    at = log.offsets[number] + SYS_FLAG_AT
    data = log.file_of(at).read_bytes()
    held = int.from_bytes(data[at : at + 4], "big")
    log.write(at, (held ^ bit).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("fields", "bits"),
    [
        # Not 0x2: who has several tags is in topics.json, which is not here.
        ({}, (0x1, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800, 1 << 31)),
        (COMPRESSED, (0x1, 0x100, 0x200, 0x400)),
        (COMMITTED, (0x4, 0x8)),
        (BATCH, (0x1, 0x80)),
    ],
    ids=["plain", "compressed", "committed", "batch"],
)
def test_every_bit_that_is_flipped_is_found(
    fields: dict[str, Any], bits: tuple[int, ...], tmp_path: Path
) -> None:
    log = WrittenLog(tmp_path / "store").add(3, topic="T", queue_id=0)
    given: dict[str, Any] = {"topic": "T", "queue_id": 0, **fields}
    log.add(**given)
    derive(log.root)
    checks = ["crc", "queues"]
    assert audited(log.root, checks=checks).counts == {}

    for bit in bits:
        flipped(log, 3, bit)
        result = audited(log.root, checks=checks)
        assert not result.is_good, hex(bit)
        assert log.offsets[3] in [each["commitLogOffset"] for each in result.findings], hex(bit)
        flipped(log, 3, bit)


def test_where_and_what_to_do(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path / "store").add(9)
    flipped(log, 4, 0x1)

    (finding,) = audited(log.root, checks=["crc"]).findings

    assert finding["kind"] == "sys flag"
    assert finding["fileOffset"] == finding["commitLogOffset"] == log.offsets[4]
    assert (finding["topic"], finding["queueId"], finding["queueOffset"]) == ("topic-1", 0, 4)
    assert finding["reason"] == (
        "the sysFlag 0x1 says that the body is compressed by zlib, and it is not"
    )
    assert "restore" in finding["remedy"]


def test_several_tags_where_no_topic_has_such(tmp_path: Path) -> None:
    apache = apache_golden.unpack("plain", tmp_path).path
    (segment, *_) = sorted((apache / "commitlog").iterdir())
    with open(segment, "r+b") as file:
        file.seek(SYS_FLAG_AT)
        held = int.from_bytes(file.read(4), "big")
        file.seek(SYS_FLAG_AT)
        file.write((held ^ 0x2).to_bytes(4, "big"))

    assert audited(apache, **APACHE_GEOMETRY).counts == {"sys flag": 1}
    for name in ("topics.json", "topics.json.bak"):
        path = apache / "config" / name
        path.write_text(path.read_text().replace('"SINGLE_TAG"', '"MULTI_TAG"'))
    assert audited(apache, **APACHE_GEOMETRY).counts == {}


def test_what_brokers_write_is_no_contradiction(tmp_path: Path) -> None:
    ours = write_store(tmp_path / "ours")
    committed_again: dict[str, Any] = {
        "sys_flag": 0x8,
        "properties": {"PGROUP": "g", "TRAN_MSG": "true"},
    }
    log = WrittenLog(tmp_path / "log").add(**COMMITTED).add(**committed_again).add(**COMPRESSED)

    assert audited(ours).counts == {}
    assert audited(log.root, checks=["crc"]).counts == {}
