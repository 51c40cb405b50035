"""A store of before the first release, left cleanly or killed, opens with every note.

So does one that this release has left. See tests/golden/rockhopper-before-0.2.0/README.md.
"""

import tarfile
from pathlib import Path

import pytest

from tests.support.noted_store import FACTS, NotedStore

GOLDEN = Path(__file__).parents[2] / "golden" / "rockhopper-before-0.2.0" / "noted.tar.xz"


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_every_note_of_early_builds_is_kept(tmp_path: Path, name: str) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    _goes_on(tmp_path, tmp_path / name)


@pytest.mark.parametrize("name", ["clean", "killed"])
def test_every_note_of_this_release_is_kept(tmp_path: Path, name: str) -> None:
    first = NotedStore(tmp_path / "first")
    first.start()
    first.fill()
    assert first.facts() == FACTS
    killed = first.kill(tmp_path / "copy")
    first.stop()
    _goes_on(tmp_path, killed if name == "killed" else first.root)


def _goes_on(tmp_path: Path, root: Path) -> None:
    """Nothing is forgotten or repeated at this start, or when it is killed right behind it."""
    started = NotedStore(root, passed_ms=3000)
    started.start()
    assert started.facts() == FACTS
    killed = started.kill(tmp_path / "killed-again")
    started.stop()
    for again in (killed, root):
        store = NotedStore(again, passed_ms=3000)
        store.start()
        assert store.facts() == FACTS
        store.stop()
