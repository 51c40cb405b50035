"""config/timercheck and the wheel, as RocketMQ has them."""

from pathlib import Path

import pytest

from rockhopper.broker.kernel.scheduled.timers.java_files import (
    TimerCheck,
    crc,
    encode_fields,
    encode_timer_check,
    load_timer_check,
    remove_wheel,
    save_timer_check,
)
from tests.support.golden_stores import golden_directory


def test_timercheck_of_the_golden_store_is_read_and_written_as_it_is() -> None:
    path = golden_directory() / "timer" / "config" / "timercheck"
    check, _ = load_timer_check(path)
    assert check is not None
    assert (check.read_time_ms, check.queue_offset, check.master_queue_offset) == (
        1_795_166_960_000,
        6,
        6,
    )
    assert encode_timer_check(check) == path.read_bytes()


def test_fields_travel_without_the_zeros_behind_them() -> None:
    check = TimerCheck(1, 2, 3, 4, 5, 6, 7)
    assert encode_fields(check) == b"".join(n.to_bytes(8, "big") for n in range(1, 8))
    assert encode_timer_check(check) == encode_fields(check) + bytes(4096 - 56)


def test_what_is_saved_is_known_again_by_its_crc(tmp_path: Path) -> None:
    path = tmp_path / "config" / "timercheck"
    data = encode_timer_check(TimerCheck(9, 8, 7, 6))
    save_timer_check(path, data)
    assert load_timer_check(path) == (TimerCheck(9, 8, 7, 6), crc(data))
    assert crc(data) != crc(encode_timer_check(TimerCheck(9, 8, 7, 5)))


@pytest.mark.parametrize("content", [None, b"", bytes(4096), b"\1" * 55])
def test_a_file_that_says_nothing_is_none(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "timercheck"
    if content is not None:
        path.write_bytes(content)
    assert load_timer_check(path) == (None, 0)


def test_the_fields_alone_are_enough(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    path.write_bytes(encode_fields(TimerCheck(1, 2, 3, 4)))
    assert load_timer_check(path)[0] == TimerCheck(1, 2, 3, 4)


@pytest.mark.parametrize("has_log", [True, False])
def test_the_wheel_and_its_log_are_removed_with_what_is_there(
    tmp_path: Path, has_log: bool
) -> None:
    wheel, timer_log = tmp_path / "timerwheel", tmp_path / "timerlog"
    wheel.write_bytes(b"wheel")
    if has_log:
        timer_log.mkdir()
        for name in ("0", "1"):
            (timer_log / name).write_bytes(b"log")
    remove_wheel(wheel, timer_log)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    remove_wheel(wheel, timer_log)
