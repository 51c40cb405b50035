"""The page cache is filled as far as there is memory, and given back."""

from pathlib import Path

import pytest

from benchmarks import memory

MIB = 1024


def test_it_is_filled_until_little_is_free(tmp_path: Path) -> None:
    free_mib = iter(range(memory.FREE_MB + 10, 0, -4))

    def sizes() -> dict[str, int]:
        return {"MemTotal": 4096 * MIB, "MemFree": next(free_mib) * MIB}

    next_free = sizes()["MemFree"]
    assert next_free > memory.FREE_MB * MIB
    with memory.filler(tmp_path, sizes) as fill:
        assert fill() == 4
        assert [path.name for path in tmp_path.iterdir()] == ["page-cache"]
    assert list(tmp_path.iterdir()) == []


def test_it_ends_with_the_memory_that_there_is(tmp_path: Path) -> None:
    with memory.filler(tmp_path, lambda: {"MemTotal": 8 * MIB, "MemFree": 1 << 40}) as fill:
        assert (fill(), fill()) == (8, 8)


def test_without_sizes_there_is_nothing_to_fill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "none")
    with memory.filler(tmp_path) as fill:
        assert fill() == 0
