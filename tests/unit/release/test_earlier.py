"""The wheel of an earlier release is built from its commit, once."""

import subprocess
from pathlib import Path

import pytest

from tests.release import earlier
from tests.release.earlier import find_commit, find_wheel
from tests.release.places import ReleaseError
from tests.release.source import git

pytestmark = pytest.mark.costly

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "made-up"
version = "{}"
[tool.setuptools]
py-modules = []
"""


def commit(root: Path, version: str, name: str) -> str:
    """Commit a file *name*, and *version* if it is another one; the commit's hash."""
    (root / "pyproject.toml").write_text(PROJECT.format(version))
    (root / name).touch()
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", name)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    subprocess.run(["git", "init", "--quiet", root], check=True)
    git(root, "config", "user.name", "Somebody")
    git(root, "config", "user.email", "somebody@example.org")
    commit(root, "0.1.dev0", "begin")
    return root


def test_a_tag_on_a_commit_of_another_version_is_refused(checkout: Path) -> None:
    git(checkout, "tag", "v1.0")
    with pytest.raises(ReleaseError, match=r"v1.0 calls itself 0.1.dev0"):
        find_commit(checkout, "1.0")


def test_the_tag_says_which_commit_a_release_is(checkout: Path) -> None:
    released = commit(checkout, "1.0", "release")
    git(checkout, "tag", "v1.0")
    commit(checkout, "1.0", "more")
    assert find_commit(checkout, "1.0").hash == released


def test_without_a_tag_it_is_the_newest_commit_of_that_version(checkout: Path) -> None:
    commit(checkout, "1.0", "release")
    newest = commit(checkout, "1.0", "more")
    assert find_commit(checkout, "1.0").hash == newest
    commit(checkout, "1.1.dev0", "next")
    commit(checkout, "1.1.dev0", "and on")
    assert git(checkout, "rev-parse", find_commit(checkout, "1.0").hash) == newest


def test_a_shallow_clone_says_what_to_fetch(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match=r"neither a tag v1\.0 nor a commit of that version"):
        find_commit(checkout, "1.0")
    commit(checkout, "1.0", "release")
    commit(checkout, "1.1.dev0", "next")
    clone = tmp_path / "clone"
    address = f"file://{checkout}"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", address, clone], check=True)
    with pytest.raises(ReleaseError, match="git fetch --tags --unshallow"):
        find_commit(clone, "1.0")


def test_a_wheel_is_built_once_and_anew_if_it_is_damaged(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(checkout, "1.0", "release")
    commit(checkout, "1.1.dev0", "next")
    wheel = find_wheel(checkout, "1.0", tmp_path / "releases")
    assert wheel.name == "made_up-1.0-py3-none-any.whl"
    whole = wheel.read_bytes()

    wheel.write_bytes(whole[:-1])
    assert find_wheel(checkout, "1.0", tmp_path / "releases") == wheel
    assert wheel.read_bytes() == whole
    monkeypatch.delattr(earlier, "_build")
    assert find_wheel(checkout, "1.0", tmp_path / "releases") == wheel
