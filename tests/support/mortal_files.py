"""Files of an archive whose process dies at some step, and the readers' view of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from rockhopper.pipeline.jobs.archiving.catalog import Catalog
from rockhopper.pipeline.jobs.archiving.files import LocalFiles

STEPS = ("write", "create_directory", "create_leaf", "move", "remove", "remove_tree", "settle")


class Killed(BaseException):
    """Simulates kill -9: no code catches it."""


class Mortal:
    """Files whose process dies before step number *dies_at*; each move counts."""

    def __init__(self, files: LocalFiles, dies_at: int | None) -> None:
        self._files = files
        self._dies_at = dies_at
        self.steps: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        if name == "move":
            return self._move
        return self._step(name, found) if name in STEPS else found

    def _step(self, name: str, action: Callable[..., Any]) -> Callable[..., Any]:
        def take(*args: Any) -> Any:
            number = len(self.steps)
            self.steps.append(f"{name} {args[0]}")
            if number == self._dies_at:
                raise Killed
            return action(*args)

        return take

    def _move(self, moves: list[tuple[str, str]]) -> None:
        for each in moves:
            self._step("move", lambda pair: self._files.move([pair]))(each)


def plain_offsets(root: Path) -> list[int]:
    """Return the offsets that a directory listing shows, as Spark reads it."""
    found: list[int] = []
    for path in root.rglob("*.parquet"):
        if not any(part[0] in "_." for part in path.relative_to(root).parts):
            found += pq.ParquetFile(path).read(["physOffset"])["physOffset"].to_pylist()
    return sorted(found)


def committed_offsets(root: Path) -> list[int]:
    """Return the offsets in the manifests."""
    found: list[int] = []
    for file in Catalog(LocalFiles(root)).archived_files():
        found += pq.ParquetFile(root / file.path).read(["physOffset"])["physOffset"].to_pylist()
    return sorted(found)
