"""The stores in tests/golden that Apache's official broker wrote, unpacked for one test."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHIVE = Path(__file__).parents[1] / "golden" / "apache-5.5.0" / "stores.tar.xz"


@dataclass(frozen=True, slots=True)
class ApacheStore:
    """A copy of one store, and the messages that Apache's client read from it."""

    path: Path
    geometry: dict[str, str]
    """Settings under RocketMQ's names; all others are Apache's defaults."""
    topics: dict[str, dict[str, Any]]
    """Per topic: ``messages`` and ``queues``; see tests/golden/apache-5.5.0/README.md."""


def unpack(name: str, directory: Path) -> ApacheStore:
    """Unpack the store *name* (plain, batch, extended, killed) below *directory*."""
    with tarfile.open(ARCHIVE) as archive:
        members = [m for m in archive.getmembers() if m.name.split("/")[0].split(".")[0] == name]
        archive.extractall(directory, members, filter="data")
    found = json.loads((directory / f"{name}.json").read_text())
    return ApacheStore(directory / name, found["geometry"], found["topics"])
