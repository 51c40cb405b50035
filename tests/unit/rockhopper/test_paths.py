"""Home directories that are not there."""

import pwd
from pathlib import Path
from typing import NoReturn

import pytest

from rockhopper.paths import expand_home


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process under a number that is no user's, without HOME."""

    def unknown(_who: object) -> NoReturn:
        raise KeyError("uid not found")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)


@pytest.mark.usefixtures("homeless")
@pytest.mark.parametrize("path", ["~", "~/x", "~nobody-of-that-name/x"])
def test_a_home_that_is_not_known_is_an_error_with_a_reason(path: str) -> None:
    with pytest.raises(OSError, match="no home directory is known") as caught:
        expand_home(path)
    assert caught.value.filename == path


def test_a_home_is_put_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expand_home("~/x") == Path("/home/me/x")
    assert expand_home("/a/~") == Path("/a/~")
