"""The wheel of a release that was made, built from its commit: ``python -m tests.release.earlier``.

It is for tests of upgrades. It stands in build/releases/VERSION, built once for each Python; one
that is damaged, or of another commit than the one that is found now, is built anew.
"""

import fcntl
import hashlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

import click

from tests.release.building import one_in
from tests.release.places import ROOT, Place, ReleaseError
from tests.release.source import Commit, git

RELEASES = ROOT / "build" / "releases"
PROJECT = "pyproject.toml"


def find_commit(checkout: Path, version: str) -> Commit:
    """The commit of the tag, or else the newest before HEAD that calls itself *version*.

    While HEAD calls itself so, and there is no tag, that is HEAD. Raises ReleaseError.
    """
    if tag := git(checkout, "tag", "--list", f"v{version}"):
        commit = Commit(checkout, git(checkout, "rev-parse", f"{tag}^{{commit}}"))
        if commit.version != version:
            raise ReleaseError(f"the commit of the tag {tag} calls itself {commit.version}")
        return commit
    newest = git(checkout, "rev-parse", "HEAD")
    for changed in git(checkout, "log", "--first-parent", "--format=%H", "--", PROJECT).split():
        if Commit(checkout, changed).version == version:
            return Commit(checkout, git(checkout, "rev-parse", newest))
        newest = f"{changed}^"
    shallow = git(checkout, "rev-parse", "--is-shallow-repository") == "true"
    raise ReleaseError(
        f"there is neither a tag v{version} nor a commit of that version in {checkout}"
        + (": git fetch --tags --unshallow fetches them" if shallow else "")
    )


def find_wheel(checkout: Path, version: str, releases: Path = RELEASES) -> Path:
    """The wheel of *version* for this Python, built if it is not there. Raises ReleaseError."""
    commit = find_commit(checkout, version)
    kept = releases / version / str(sys.implementation.cache_tag)
    kept.mkdir(parents=True, exist_ok=True)
    with open(kept.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _kept_wheel(kept, commit) or _build(kept, commit)


def _note(wheel: Path, commit: Commit) -> str:
    return json.dumps(
        {"commit": commit.hash, "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()}
    )


def _kept_wheel(kept: Path, commit: Commit) -> Path | None:
    wheels, note = list(kept.glob("*.whl")), kept / "note.json"
    if len(wheels) != 1 or not note.exists():
        return None
    if note.read_text(errors="replace") != _note(wheels[0], commit):
        return None
    return wheels[0]


def _build(kept: Path, commit: Commit) -> Path:
    """Build with the setuptools of this environment, in a folder that goes."""
    shutil.rmtree(kept)
    kept.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        place = Place("here", Path(folder), sys.executable)
        commit.write_to(place.folder / "source")
        place.run(
            *(place.python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
            *("--wheel-dir", "wheel", "./source"),
            SOURCE_DATE_EPOCH=str(commit.time_s),
        )
        wheel = Path(shutil.copy(one_in(place.folder / "wheel"), kept))
    (kept / "note.json").write_text(_note(wheel, commit))
    return wheel


@click.command()
@click.argument("version")
def main(version: str) -> None:
    """Build the wheel of VERSION, and say where it is and what it was built from."""
    try:
        wheel = find_wheel(ROOT, version)
        click.echo(f"{wheel} of {find_commit(ROOT, version).hash}")
    except ReleaseError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
