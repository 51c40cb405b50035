"""Build and try a release: ``python -m tests.release``; ``make release``.

HEAD becomes an sdist, and a wheel for each Python. A wheel is built in a Debian of its own and
tried in one that has Python and nothing else; without Debians, it is built and tried with the
Python that runs this. The files in dist/release/VERSION have the same bytes whenever the same tools
make them of the same commit.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from tests.release import building, trying
from tests.release.places import ROOT, Place, ReleaseError, debian, here
from tests.release.source import Commit, committed, git

SUITES = "bookworm trixie forky"
FOR_DEVELOPERS = re.compile("dev|docs|fuzz|packages|test(-.+)?")
"""Extras that nobody asks for who uses what is released."""
IS_312_WITH_HEADERS = """
import os, sys, sysconfig
print(sys.executable)
has_headers = os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))
sys.exit(sys.version_info[:2] != (3, 12) or not has_headers)
"""
COMPILER = """
import subprocess, sysconfig
compiler = sysconfig.get_config_var("CC").split()[0]
print(subprocess.check_output([compiler, "--version"], text=True).splitlines()[0])
"""
NAME = "rockhopper_mq"
BILL = Path(building.__file__).with_name("bill_of_materials.py")


@dataclass(frozen=True)
class Builder:
    """A Python that a wheel is built for, and where it is tried."""

    name: str
    find_building: Callable[[], Place]
    find_bare: Callable[[], Place]


@dataclass(frozen=True)
class Built:
    """A wheel that was tried, what it was built with, and what was installed with it."""

    file: Path
    facts: dict[str, str]
    installed: list[dict[str, Any]]


def say(began: float, text: str) -> None:
    """Print what is done, and after how many seconds."""
    click.echo(f"{time.monotonic() - began:6.0f} s  {text}")


def in_debian(suite: str) -> Builder:
    """Build with a Debian's Python, and try the wheel where there is no compiler."""
    return Builder(suite, partial(debian, f"{suite}-build"), partial(debian, suite))


def on_this_machine(python: str, name: str) -> Builder:
    """Build with *python*, and try the wheel in another environment of it."""
    return Builder(name, partial(here, python, name), partial(here, python, f"{name}-bare"))


def find_312() -> str | None:
    """A CPython 3.12 with headers, which no Debian has."""
    named = (os.environ.get("PYTHON312") or "", "python3.12")
    for python in filter(None, map(shutil.which, named)):
        done = subprocess.run([python, "-c", IS_312_WITH_HEADERS], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    return None


def builders(suites: list[str]) -> list[Builder]:
    """All that wheels are built for; the first builds the sdist, too."""
    found = [in_debian(suite) for suite in suites]
    if not suites:
        found.append(on_this_machine(sys.executable, "here"))
        if sys.version_info[:2] == (3, 12):
            return found
    if python := find_312():
        found.append(on_this_machine(python, "python3.12"))
    else:
        click.echo(
            "left out: CPython 3.12, which Debian does not have; PYTHON312=/path/to/python3.12 "
            "names one with headers"
        )
    return found


def make_wheel(builder: Builder, place: Place, tools: str, sdist: Path, commit: Commit) -> Built:
    """Build the wheel, check it and try it; with a Debian, try the sdist in both ways as well."""
    wheel = building.build_wheel(place, tools, sdist, commit)
    place.run(
        *(f"{tools}/python", "-m", "twine", "check", "--strict"),
        *(f"wheel/{wheel.name}", f"sdist/{sdist.name}"),
    )
    facts = describe(wheel)
    facts["python"] = place.run(place.python, "--version").split()[1]
    facts["compiler"] = place.run(place.python, "-c", COMPILER).strip()
    bare = builder.find_bare().emptied()
    installed = trying.try_package(bare, wheel, "all")
    if place.is_debian:
        trying.try_package(bare, sdist, "none")
        trying.try_package(place, sdist, "all")
    return Built(wheel, facts, installed)


def describe(file: Path) -> dict[str, str]:
    """Name and checksum of *file*."""
    return {"name": file.name, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}


def write_bill(place: Place, tools: str, commit: Commit, sdist: Path, built: list[Built]) -> str:
    """Return the bill of materials, made by the tools of *place*."""
    project = commit.project["project"]
    extras = {
        extra: [each for each in wanted if not each.startswith(project["name"])]
        for extra, wanted in project["optional-dependencies"].items()
        if not FOR_DEVELOPERS.fullmatch(extra)
    }
    ours = {"pip", "setuptools"}  # an environment's own
    facts = {
        "name": project["name"],
        "source": project["urls"]["Source"],
        "commit": commit.hash,
        "time_s": commit.time_s,
        "files": [describe(sdist), *(each.facts for each in built)],
        "installed": [each for each in built[0].installed if each["name"] not in ours],
        "extras": extras,
        "tools": trying.list_installed(place, tools),
    }
    (place.folder / "facts.json").write_text(json.dumps(facts))
    shutil.copy(BILL, place.folder)
    return place.run(f"{tools}/python", "-P", BILL.name, "facts.json")


def gather(output: Path, files: list[Path], named: dict[str, str]) -> None:
    """Put *files*, the texts *named* and the checksums of all into *output*, anew."""
    fresh = output.with_name(f".{output.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for file in files:
        shutil.copyfile(file, fresh / file.name)
    for name, text in named.items():
        (fresh / name).write_text(text)
    sums = [describe(file) for file in sorted(fresh.iterdir())]
    lines = [f"{each['sha256']}  {each['name']}\n" for each in sums]
    (fresh / "SHA256SUMS").write_text("".join(lines))
    shutil.rmtree(output, ignore_errors=True)
    fresh.rename(output)


def release(suites: list[str], output: Path) -> Path:
    """Build and try what HEAD releases; the folder with it."""
    began = time.monotonic()
    commit = committed(ROOT)
    tag = git(ROOT, "tag", "--list", f"v{commit.version}")
    if not tag:
        click.echo(f"there is no tag v{commit.version} yet")
    elif git(ROOT, "rev-parse", f"{tag}^{{commit}}") != commit.hash:
        click.echo(f"HEAD is not {tag}, and calls itself {commit.version} all the same")
    say(began, f"{NAME} {commit.version} of {commit.hash[:12]}")
    wanted = builders(suites)
    place = wanted[0].find_building().emptied()
    tools = building.install_tools(place, commit)
    sdist = building.build_sdist(place, tools, commit)
    say(began, f"{wanted[0].name}: {sdist.name}")

    def build(builder: Builder) -> Built:
        if builder is wanted[0]:
            made = make_wheel(builder, place, tools, sdist, commit)
        else:
            other = builder.find_building().emptied()
            made = make_wheel(builder, other, building.install_tools(other, commit), sdist, commit)
        say(began, f"{builder.name}: {made.file.name}, tried")
        return made

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        built = list(executor.map(build, wanted))
    bill = write_bill(place, tools, commit, sdist, built)
    name = f"{NAME}-{commit.version}.cdx.json"
    is_whole = suites == SUITES.split()
    folder = output / (commit.version if is_whole else f"{commit.version}-partial")
    gather(folder, [sdist, *(each.file for each in built)], {name: bill})
    say(began, "checksums and bill of materials")
    return folder


@click.command()
@click.option(
    "--suites",
    default=SUITES,
    show_default=True,
    help='Debians to build in, with .ci/debian; "" for the Pythons of this machine alone.',
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=ROOT / "dist" / "release",
    help="Where the folder VERSION is made, or VERSION-partial if not all suites are.",
)
def main(suites: str, output: Path) -> None:
    """Build, try and gather a release of what is committed."""
    lock = ROOT / "build" / "release.lock"
    lock.parent.mkdir(exist_ok=True)
    try:
        with open(lock, "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            folder = release(suites.split(), output)
    except BlockingIOError:
        sys.exit("a release is being made in this checkout already: wait until that has ended")
    except ReleaseError as error:
        sys.exit(str(error))
    click.echo((folder / "SHA256SUMS").read_text() + f"in {folder}")


if __name__ == "__main__":
    main()
