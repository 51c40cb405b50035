"""The yardsticks that are measured beside the servers."""

from pathlib import Path

import pytest

from benchmarks import servers


def test_the_time_of_an_fdatasync_is_the_median_of_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, synced = 0.0, 0

    def sync(descriptor: int) -> None:
        nonlocal now_s, synced
        synced += 1
        now_s += 1.0 if synced % 10 == 0 else 0.002

    monkeypatch.setattr("benchmarks.servers.disk.sync_file", sync)
    monkeypatch.setattr("benchmarks.servers.time.perf_counter", lambda: now_s)
    assert servers.fdatasync_us(tmp_path, 4096) == pytest.approx(2000.0)
    assert synced == servers.SYNC_COUNT
    assert list(tmp_path.iterdir()) == []
