"""Two clones in different places, under another umask and time zone, give the same packages."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.build_backend import can_compile
from tests.release.building import build_sdist, build_wheel
from tests.release.places import Place
from tests.release.source import Commit, git

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not can_compile(), reason="needs a C compiler and Python's headers"),
    pytest.mark.skipif(not (Path(__file__).parents[2] / ".git").exists(), reason="needs git"),
]

ROOT = Path(__file__).parents[2]
TOOLS = str(Path(sys.executable).parent)


@pytest.fixture
def umask() -> Iterator[None]:
    former = os.umask(0o077)
    yield
    os.umask(former)


def packages(clone: Path) -> list[Path]:
    """Sdist and wheel of HEAD, built beside a clone with the tools of this environment."""
    subprocess.run(["git", "clone", "--quiet", "--no-local", ROOT, clone], check=True)
    place = Place("here", clone / "build" / "here", sys.executable).emptied()
    commit = Commit(clone, git(clone, "rev-parse", "HEAD"))
    sdist = build_sdist(place, TOOLS, commit)
    return [sdist, build_wheel(place, TOOLS, sdist, commit)]


@pytest.mark.usefixtures("umask")
def test_two_clones_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = packages(tmp_path / "one")
    os.umask(0o022)
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    second = packages(tmp_path / "another place" / "two")
    assert [each.name for each in first] == [each.name for each in second]
    differing = [
        one.name
        for one, two in zip(first, second, strict=True)
        if one.read_bytes() != two.read_bytes()
    ]
    assert differing == []
