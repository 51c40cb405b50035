"""Home directories that are not there, and names that lead out of their directory."""

import pwd
from pathlib import Path
from typing import NoReturn

import pytest

from rockhopper.paths import check_inside, check_relative, expand_home


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


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", "a//b", "./a", "a/..", "a\0"])
def test_a_name_that_leads_out_of_its_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not the path of a file below its directory"):
        check_relative(name)
    with pytest.raises(ValueError, match="not the path"):
        check_inside(tmp_path, name)


def test_a_link_that_leads_out_is_refused_and_one_that_stays_is_followed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    (root / "in").symlink_to("a")
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(ValueError, match="symbolic link"):
        check_inside(root, "out/x")
    assert check_inside(root, "in/x") == root / "in/x"
    assert check_inside(tmp_path / "link", "a/x") == tmp_path / "link/a/x"
