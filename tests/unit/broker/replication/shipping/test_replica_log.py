"""What replication needs of a log: here of the one in memory that its tests use."""

from rockhopper.broker.replication.shipping.replica_log import ReplicaLog
from tests.support.replica_rig import FILE_SIZE_BYTES, MemoryLog


def a_log() -> ReplicaLog:
    return MemoryLog(FILE_SIZE_BYTES)


def test_what_is_appended_is_read_within_one_file() -> None:
    log = a_log()
    log.append(FILE_SIZE_BYTES, b"a" * (FILE_SIZE_BYTES - 2) + b"bbcc")
    assert (log.start_offset, log.end_offset) == (FILE_SIZE_BYTES, 2 * FILE_SIZE_BYTES + 2)
    assert log.read(2 * FILE_SIZE_BYTES - 2, 100) == b"bb"
    assert log.read(2 * FILE_SIZE_BYTES, 100) == b"cc"
    assert log.read(log.end_offset, 100) == b""


async def test_what_is_cut_is_gone() -> None:
    log = a_log()
    log.append(FILE_SIZE_BYTES, b"abc")
    await log.cut(FILE_SIZE_BYTES + 1)
    assert log.end_offset == log.acknowledgeable_offset == FILE_SIZE_BYTES + 1


async def test_a_log_can_begin_anew_elsewhere() -> None:
    log = a_log()
    log.append(FILE_SIZE_BYTES, b"abc")
    await log.begin_at(5 * FILE_SIZE_BYTES)
    assert log.start_offset == log.end_offset == 5 * FILE_SIZE_BYTES
