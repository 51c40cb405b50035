"""What a release is made of: a commit."""

import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.release.places import ReleaseError


def git(checkout: Path, *arguments: str) -> str:
    """What git prints in *checkout*. Raises ReleaseError if it fails."""
    try:
        done = subprocess.run(["git", "-C", checkout, *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise ReleaseError("a release is made of a commit: install git") from error
    if done.returncode:
        raise ReleaseError(f"git {arguments[0]} failed in {checkout}: {done.stderr.strip()}")
    return done.stdout.strip()


@dataclass(frozen=True)
class Commit:
    """One commit of *checkout*, by its hash."""

    checkout: Path
    hash: str

    @property
    def time_s(self) -> int:
        """When it was made: all files of the packages have this time."""
        return int(git(self.checkout, "log", "-1", "--format=%ct", self.hash))

    @property
    def project(self) -> dict[str, Any]:
        """The commit's pyproject.toml."""
        return tomllib.loads(git(self.checkout, "show", f"{self.hash}:pyproject.toml"))

    @property
    def version(self) -> str:
        """The version that the commit calls itself."""
        return str(self.project["project"]["version"])

    def write_to(self, folder: Path) -> None:
        """Write the commit's files into *folder*."""
        unchanged = ("-c", "core.autocrlf=false")
        command = [
            "git",
            "-C",
            str(self.checkout),
            *unchanged,
            "archive",
            "--format=tar",
            self.hash,
        ]
        packed = subprocess.run(command, capture_output=True, check=True).stdout
        folder.mkdir(parents=True)
        subprocess.run(["tar", "--extract", "--directory", folder], input=packed, check=True)


def committed(checkout: Path) -> Commit:
    """HEAD of *checkout*. Raises ReleaseError if files differ from it."""
    if changed := git(checkout, "status", "--porcelain"):
        raise ReleaseError(
            "a release is made of what is committed, and these files are not: commit or stash "
            f"them\n{changed}"
        )
    return Commit(checkout, git(checkout, "rev-parse", "HEAD"))
