"""File descriptors: a shortage is told apart from every other error, and says what to raise."""

import errno
import resource

import pytest

from rockhopper.broker.store.files.descriptors import (
    descriptor_needed,
    open_files_max,
    shortage_of,
)
from rockhopper.broker.store.files.errors import StoreError, TooManyOpenFilesError


@pytest.mark.parametrize(
    ("soft", "limit"), [(1024, 1024), (resource.RLIM_INFINITY, None)], ids=["some", "no limit"]
)
def test_the_limit_is_the_one_that_holds_now(
    monkeypatch: pytest.MonkeyPatch, soft: int, limit: int | None
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, 1 << 20))
    assert open_files_max() == limit


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.EMFILE, "this process may have 77; raise the limit"), (errno.ENFILE, "fs.file-max")],
)
def test_a_shortage_says_which_limit_to_raise(
    monkeypatch: pytest.MonkeyPatch, number: int, advice: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (77, 77))
    with pytest.raises(TooManyOpenFilesError, match=advice) as caught, descriptor_needed():
        raise OSError(number, "x")
    assert caught.value.errno == number
    assert isinstance(caught.value, StoreError)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.ENOENT])
def test_another_error_stays_what_it_is(number: int) -> None:
    error = OSError(number, "x")
    assert shortage_of(error) is None
    with pytest.raises(OSError) as caught, descriptor_needed():  # noqa: PT011
        raise error
    assert caught.value is error


def test_a_shortage_is_wrapped_once() -> None:
    first = TooManyOpenFilesError(errno.EMFILE, "no more")
    assert shortage_of(first) is first
    with pytest.raises(TooManyOpenFilesError) as caught, descriptor_needed(), descriptor_needed():
        raise first
    assert caught.value is first
