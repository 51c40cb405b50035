"""The durable state of a replica: small files in `<root>/rockhopper/ha/`, replaced whole.

    replica.json    {"store": <32 hex digits>, "starts": n, "boot": <the machine's boot id>}
    promise.json    {"promise": epoch}
    epochs.json     {"epochs": [[epoch, start offset], ...]}
    unclean.json    {"log_end": n, "why": ...}: acknowledged messages may be missing
    cutting.json    {"end": n}: the log is being truncated there; a start that finds it repeats that
    confirmed.json  {"confirmed": n}: an earlier confirmed offset, for comparison
    left.json       {"left": n}: the store was served alone since; its set lacks later messages
    sight.json      {"changes": n, "mark": n}: the newest state of the set that was seen

Each file is a line of JSON and a line with its CRC-32 (checked_line.py). Each has a second copy,
``<name>.bak``; both are synced before a write returns. If a file is damaged or missing, its copy is
used. A start makes the two equal before anything depends on either:

    writing   the copy, then the file     after a crash in between, the file counts if it exists
    removing  the copy, then the file     after a crash in between, the file still counts

If neither can be read, the replica refuses to start instead of guessing: without its voted epoch it
might follow a deposed master. The error names the way out. Without the directory the replica is a
new one, with another store id, and belongs to no in-sync set.
"""

import secrets
from pathlib import Path
from typing import Any
from zlib import crc32

import structlog

from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.replica_set import SeenState
from rockhopper.broker.store.files import checked_line, disk
from rockhopper.broker.store.files.errors import CorruptFileError

log = structlog.get_logger("broker.ha")

POWER_CUT = "the machine was restarted while this replica ran"
RESTORED = "the engine knows of a later start: this disk is an old copy"
COPIED = "another process was this replica meanwhile: its disk was copied"
SEEDING = "its log is being replaced by its master's"


class ReplicaDisk:
    """The directory of one replica. All methods block on the disk."""

    def __init__(self, directory: Path) -> None:
        """Create the directory and the replica's identity, or read the existing files.

        Raises:
            CorruptFileError: a file in the directory is damaged.
            OSError: the directory cannot be created or read.
        """
        disk.make_directories_durably(directory)
        self._directory = directory
        identity = self._read("replica.json") or {"store": secrets.token_hex(16), "starts": 0}
        self.store = self._field("replica.json", identity, "store", str)
        self.starts: int = self._field("replica.json", identity, "starts", int)
        self._boot = str(identity.get("boot", ""))
        self.place = ""
        """Differs for each copy of this directory and each boot of the machine; see count_start."""
        self.voted_epoch: int = self._value("promise.json", "promise", 0)
        self.replicated_offset: int = self._value("confirmed.json", "confirmed", 0)
        self.cutting: int | None = self._value("cutting.json", "end", None)
        self.left: int | None = self._value("left.json", "left", None)
        self.epochs = tuple(Epoch(*entry) for entry in self._value("epochs.json", "epochs", []))
        self.seen_state = SeenState(
            *(self._value("sight.json", name, 0) for name in SeenState._fields)
        )
        unclean = self._read("unclean.json") or {}
        self.unclean_because: str = str(unclean.get("why", ""))

    @property
    def is_clean(self) -> bool:
        """Whether no acknowledged message can be missing."""
        return not self.unclean_because

    def count_start(self, boot: str, log_end: int, *, may_have_lost: bool) -> int:
        """Count a start under the machine's *boot* id; return its number for this store.

        *may_have_lost*: the last run did not end cleanly, and it acknowledged messages that were
        not on disk. If the machine has rebooted since, they are lost, and the replica is marked
        unclean.
        """
        if may_have_lost and self._boot and boot != self._boot:
            self.note_unclean(log_end, POWER_CUT)
        self.starts, self._boot = self.starts + 1, boot
        found = self._directory.stat()
        self.place = f"{crc32(f'{boot} {found.st_dev} {found.st_ino}'.encode()):08x}"
        identity = {"store": self.store, "starts": self.starts, "boot": boot}
        self._write("replica.json", identity)
        return self.starts

    def note_voted_epoch(self, voted_epoch: int) -> None:
        """Store a voted epoch: the replica never follows a smaller one again."""
        self._write("promise.json", {"promise": voted_epoch})
        self.voted_epoch = voted_epoch

    def note_epochs(self, epochs: tuple[Epoch, ...]) -> None:
        """Replace the table of epochs."""
        self._write("epochs.json", {"epochs": [list(epoch) for epoch in epochs]})
        self.epochs = epochs

    def note_unclean(self, log_end: int, why: str) -> None:
        """Mark the replica as unclean.

        It cannot be elected until its master confirms that nothing is missing.
        """
        self._write("unclean.json", {"log_end": log_end, "why": why})
        self.unclean_because = why

    def note_clean(self) -> None:
        """Remove the unclean mark."""
        self._remove("unclean.json")
        self.unclean_because = ""

    def note_left(self, offset: int) -> None:
        """Store that the replica is served alone; up to *offset* its log equals its set's."""
        self._write("left.json", {"left": offset})
        self.left = offset

    def note_joined(self) -> None:
        """Store that the replica belongs to a set again."""
        if self.left is not None:
            self._remove("left.json")
            self.left = None

    def note_cutting(self, end_offset: int) -> None:
        """Store that the log is about to be truncated at *end_offset*."""
        self._write("cutting.json", {"end": end_offset})
        self.cutting = end_offset

    def note_cut(self) -> None:
        """Store that the truncation is complete."""
        self._remove("cutting.json")
        self.cutting = None

    def note_confirmed(self, offset: int) -> None:
        """Store the replicated offset, for comparison with a master whose log differs."""
        self._write("confirmed.json", {"confirmed": offset})
        self.replicated_offset = offset

    def note_seen_state(self, seen_state: SeenState) -> None:
        """Store which state of the set was seen."""
        self._write("sight.json", seen_state._asdict())
        self.seen_state = seen_state

    def _remove(self, name: str) -> None:
        path = self._directory / name
        for each in (disk.backup_path(path), path):
            each.unlink(missing_ok=True)
            disk.sync_directory(self._directory)

    def _write(self, name: str, document: dict[str, Any]) -> None:
        data = checked_line.encode(document)
        disk.write_atomically(self._directory / name, data, data)

    def _value(self, name: str, field: str, default: Any) -> Any:
        document = self._read(name)
        if document is None:
            return default
        return self._field(name, document, field, list if default == [] else int)

    def _field(self, name: str, document: dict[str, Any], field: str, kind: type) -> Any:
        value = document.get(field)
        if type(value) is not kind:
            raise self._build_damage_error(name, f"its {field} is {str(value)[:50]!r}")
        return value

    def _read(self, name: str) -> dict[str, Any] | None:
        """Return the content of a file or of its copy; both are equal afterwards."""
        path = self._directory / name
        backup = disk.backup_path(path)
        found = [_content(each) for each in (path, backup)]
        problems = []
        for each, data in zip((path, backup), found, strict=True):
            if data is None:
                continue
            try:
                document = _document(data)
            except ValueError as error:
                problems.append(f"{each.name}: {error}")
                continue
            if each is backup:
                reason = "; ".join(problems) or "it is missing"
                log.warning("state file read from its copy", file=str(path), reason=reason)
            if found != [data, data]:
                disk.write_atomically(path, data, data)
            return document
        if problems:
            raise self._build_damage_error(name, "; ".join(problems))
        return None

    def _build_damage_error(self, name: str, what: str) -> CorruptFileError:
        return CorruptFileError(
            self._directory / name,
            f"damaged: {what}. The epoch that this replica voted for is not known; move "
            f"{self._directory} away: it is then a new replica, which its set seeds again",
        )


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _document(data: bytes) -> dict[str, Any]:
    document = checked_line.decode(data)
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def boot_id() -> str:
    """Return an id that differs for each machine and each of its boots; "" if none can be read."""
    found = []
    for path in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        try:
            found.append(Path(path).read_text().strip())
        except OSError:
            continue
    return "/".join(found)
