"""A release is made of a commit, and of nothing else."""

import subprocess
from pathlib import Path

import pytest

from tests.release.places import ReleaseError
from tests.release.source import Commit, committed, git

PROJECT = '[project]\nname = "made-up"\nversion = "1.2.3"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    subprocess.run(["git", "init", "--quiet", root], check=True)
    (root / "pyproject.toml").write_text(PROJECT)
    git(root, "config", "user.name", "Somebody")
    git(root, "config", "user.email", "somebody@example.org")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "Begin", "--date", "@1700000000 +0000")
    return root


def test_a_commit_has_its_version_and_files(checkout: Path, tmp_path: Path) -> None:
    commit = committed(checkout)
    (checkout / "pyproject.toml").write_text("")
    assert commit.version == "1.2.3"
    commit.write_to(tmp_path / "there")
    assert (tmp_path / "there" / "pyproject.toml").read_text() == PROJECT


def test_files_that_are_not_committed_are_named(checkout: Path) -> None:
    (checkout / "left.txt").touch()
    with pytest.raises(ReleaseError, match=r"commit or stash.*\n.*left.txt"):
        committed(checkout)


def test_a_folder_without_git_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="git rev-parse failed"):
        git(tmp_path, "rev-parse", "HEAD")
    assert Commit(tmp_path, "HEAD").hash == "HEAD"
