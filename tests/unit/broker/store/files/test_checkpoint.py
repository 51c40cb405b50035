"""StoreCheckpoint: RocketMQ's bytes in and out, and what it leaves when it dies."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import checkpoint
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint

# What RocketMQ 5.3 left after storing 30 messages and stopping.
ROCKETMQ_PAGE = bytes.fromhex("000001a1f84043ad 000001a1f84043b3 000001a1f84043b1").ljust(
    4096, b"\0"
)
ROCKETMQ_CHECKPOINT = StoreCheckpoint(
    commit_log_ms=0x1A1F84043AD, consume_queue_ms=0x1A1F84043B3, index_ms=0x1A1F84043B1
)


def test_reads_what_rocketmq_wrote(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(ROCKETMQ_PAGE)
    assert checkpoint.load(path) == ROCKETMQ_CHECKPOINT


def test_writes_what_rocketmq_writes(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, ROCKETMQ_CHECKPOINT)
    assert path.read_bytes() == ROCKETMQ_PAGE


def test_the_two_offsets_stand_behind_the_three_times(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    checkpoint.save(path, StoreCheckpoint(1, 2, 3, master_flushed_offset=4, confirm_offset=5))
    assert path.read_bytes()[24:40] == bytes.fromhex("0000000000000004 0000000000000005")


def test_missing_file_means_that_nothing_is_known(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path / "checkpoint") == StoreCheckpoint(0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, StoreCheckpoint()),
        (8, StoreCheckpoint(commit_log_ms=0x1A1F84043AD)),
        (24, ROCKETMQ_CHECKPOINT),
    ],
)
def test_missing_bytes_count_as_zeros(
    size_bytes: int, expected: StoreCheckpoint, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(ROCKETMQ_PAGE[:size_bytes])
    assert checkpoint.load(path) == expected


@pytest.mark.parametrize("field", range(5))
def test_negative_number_makes_everything_unknown(field: int, tmp_path: Path) -> None:
    damaged = bytearray(ROCKETMQ_PAGE)
    damaged[field * 8] = 0xFF
    path = tmp_path / "checkpoint"
    path.write_bytes(damaged)
    assert checkpoint.load(path) == StoreCheckpoint()


def test_replay_starts_three_seconds_before_the_older_of_log_and_queues() -> None:
    assert StoreCheckpoint(90_000, 50_000, 10).replay_from_ms() == 47_000
    assert StoreCheckpoint(50_000, 90_000, 10).replay_from_ms() == 47_000


def test_replay_never_starts_before_the_beginning() -> None:
    assert StoreCheckpoint(1_000, 1_000, 0).replay_from_ms() == 0


def test_how_far_the_log_is_on_disk_stands_in_our_own_file_alone(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path)
    known = StoreCheckpoint(1, 2, 3, flushed_offset=0x1234)

    checkpoint.save_at_start(layout, known)
    at_start = checkpoint.load(layout.checkpoint), checkpoint.load(layout.own_checkpoint)
    checkpoint.save_at_stop(layout, known)

    assert at_start == (StoreCheckpoint(1, 0, 0), known)
    assert layout.own_checkpoint.read_bytes()[40:48] == bytes.fromhex("0000000000001234")
    assert checkpoint.load(layout.checkpoint) == StoreCheckpoint(1, 2, 3)
