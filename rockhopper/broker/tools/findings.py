"""The findings of a check: each damage with its place and remedy."""

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from rockhopper.broker.tools.output import write_line

NAMED_MAX = 10_000

REPAIR = "'store repair' writes a new store without it"
REBUILD = "'store rebuild' rebuilds it from the log"
RESTORE_FILE = "restore the file from a backup, or inspect it"


class Damage(NamedTuple):
    """A single damage."""

    kind: str
    """record, queue, index, table or file."""
    path: str
    place: dict[str, Any]
    what: str
    remedy: str

    def line(self) -> str:
        """Return one line for people."""
        place = "".join(f" {name}={value}" for name, value in self.place.items())
        return f"{self.path}{place}: {self.what}; {self.remedy}"

    def json(self) -> dict[str, Any]:
        """Return one object for programs."""
        return {
            "kind": self.kind,
            "file": self.path,
            **{_camel(name): value for name, value in self.place.items()},
            "what": self.what,
            "remedy": self.remedy,
        }


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


class Findings:
    """The damage found so far, up to NAMED_MAX; *is_printed* also prints each at once."""

    def __init__(self, root: Path, *, is_printed: bool = False) -> None:
        self._root = root
        self._is_printed = is_printed
        self.counts: Counter[str] = Counter()
        self.damages: list[Damage] = []
        self.notes: Counter[str] = Counter()
        """Facts worth reporting that are not damage, with their counts."""

    def report(self, kind: str, path: Path, what: str, remedy: str, **place: Any) -> None:
        """Add a damage. *place* may have log_offset, queue_offset, file_position and others."""
        self.counts[kind] += 1
        if sum(self.counts.values()) > NAMED_MAX:
            return
        name = path.relative_to(self._root) if path.is_relative_to(self._root) else path
        damage = Damage(kind, str(name), place, what, remedy)
        self.damages.append(damage)
        if self._is_printed:
            write_line(damage.line())

    @property
    def is_sound(self) -> bool:
        """Whether there is no damage."""
        return not self.counts
