"""A mapped file is the file, whether or not the mapping holds a descriptor."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.store.files import mapped_file

SIZE = 3 * mmap.PAGESIZE


@pytest.fixture(params=["compiled", "python"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(mapped_file, "_mapping", None)
    elif mapped_file.HOLDS_DESCRIPTOR:
        pytest.skip("it is not compiled")
    return str(request.param)


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.pwrite(opened, b"first", 0)
    os.ftruncate(opened, SIZE)
    yield opened
    os.close(opened)


def test_what_is_written_through_it_is_in_the_file(way: str, descriptor: int) -> None:
    mapped = mapped_file.map_whole(descriptor, SIZE, writable=True)
    assert mapped[:5] == b"first"
    mapped[SIZE - 4 :] = b"last"
    mapped.flush(2 * mmap.PAGESIZE, mmap.PAGESIZE)
    mapped.madvise(mmap.MADV_RANDOM)
    assert os.pread(descriptor, 4, SIZE - 4) == b"last"
    os.pwrite(descriptor, b"again", 0)
    assert mapped[:5] == b"again"
    assert mapped.find(b"last") == SIZE - 4
    mapped.close()
    assert os.pread(descriptor, 5, 0) == b"again"


def test_a_mapping_for_reading_takes_nothing(way: str, descriptor: int) -> None:
    mapped = mapped_file.map_whole(descriptor, SIZE, writable=False)
    assert mapped[:5] == b"first"
    with pytest.raises(TypeError):
        mapped[:5] = b"other"
    mapped.close()


def test_one_of_a_file_that_cannot_be_mapped_is_an_error(way: str, tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match=r"."):
            mapped_file.map_whole(directory, SIZE, writable=False)
    finally:
        os.close(directory)


def test_it_holds_no_descriptor_where_there_was_a_compiler(descriptor: int) -> None:
    if mapped_file.HOLDS_DESCRIPTOR:
        pytest.skip("it is not compiled")
    before = len(os.listdir("/proc/self/fd"))
    mapped = mapped_file.map_whole(descriptor, SIZE, writable=True)
    assert len(os.listdir("/proc/self/fd")) == before
    mapped.close()
