"""Compare the tables and notes with their own checksums: seals, CRCs, copies."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from zlib import crc32

from rockhopper.broker.kernel.tables.table_seal import is_damaged, unseal
from rockhopper.broker.store.files import checked_line
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.broker.store.recovering import inventory, log_identity
from rockhopper.broker.tools.findings import RESTORE_FILE, Findings
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol import fastjson
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.store.journal_records import decode_records
from rockhopper.protocol.store.queue_layout import GEOMETRY_FILE, decode_checkpoint, decode_geometry

REPLICA_DIRECTORY = "ha"
_TRIES = 5
_CHECKED_LINES = (
    inventory.INVENTORY_FILE,
    log_identity.IDENTITY_FILE,
    "stopped-files.json",
    inventory.QUEUES_FILE,
)
_MADE_ANEW = "the next start of the broker rebuilds it"
_COPY_COUNTS = "the next start of the broker uses the intact copy"
_EDITED = (
    "expected if you edited it while the broker was stopped; otherwise the .bak has the saved state"
)


def check_tables(view: StoreView, findings: Findings) -> int:
    """Compare tables, notes and checkpoints with their checksums; return the number of files."""
    count = 0
    layout = view.layout
    for path in (layout.checkpoint, layout.own_checkpoint):
        data = _read(path)
        if data is not None:
            count += 1
            if data.strip(b"\0") and not any(decode_checkpoint(data)):
                findings.report("table", path, "the checkpoint is invalid", _MADE_ANEW)
    for path in _tables(view):
        count += 1
        _check_table(view, findings, path)
    for path in sorted(layout.own.rglob("*.records")) if layout.own.is_dir() else ():
        if layout.quarantine not in path.parents:
            count += 1
            _check_records(view, findings, path)
    count += _check_replica_files(findings, layout.own / REPLICA_DIRECTORY)
    return count + _check_notes(findings, layout.own)


def _check_notes(findings: Findings, directory: Path) -> int:
    """Check the files of one line; return their number."""
    count = 0
    for name in (*_CHECKED_LINES, GEOMETRY_FILE):
        data = _read(directory / name)
        if data is not None:
            count += 1
            try:
                decode_geometry(data) if name == GEOMETRY_FILE else checked_line.decode(data)
            except ValueError as error:
                what = f"the file is damaged: {error}"
                findings.report("table", directory / name, what, _MADE_ANEW)
    return count


def _tables(view: StoreView) -> Iterator[Path]:
    layout = view.layout
    found = set(layout.config.glob("*.json")) if layout.config.is_dir() else set()
    for directory in (layout.config, layout.own):
        for backup in directory.rglob("*.json.bak") if directory.is_dir() else ():
            if layout.quarantine not in backup.parents and not _is_replicas(backup):
                found.add(backup.with_suffix(""))
    yield from sorted(found)


def _is_replicas(path: Path) -> bool:
    return path.parent.name == REPLICA_DIRECTORY


def _check_replica_files(findings: Findings, directory: Path) -> int:
    """Check the durable state of a replica; return the number of files."""
    paths = sorted(directory.glob("*.json"))
    for path in paths:
        _check_replica_file(findings, path)
    return len(paths)


def _check_replica_file(findings: Findings, path: Path) -> None:
    """Check a file that is a line and its CRC, stored twice."""
    read = [(each.name, _read(each)) for each in (path, backup_path(path))]
    damaged = []
    for name, data in read:
        try:
            if data is not None:
                checked_line.decode(data)
        except ValueError as error:
            damaged.append(f"{name} is damaged: {error}")
    if damaged:
        is_sound = len(damaged) < sum(1 for _, data in read if data is not None)
        remedy = _COPY_COUNTS if is_sound else "the broker refuses to start with it"
        findings.report("table", path, "; ".join(damaged), remedy)


def _check_table(view: StoreView, findings: Findings, path: Path) -> None:
    data, backup = _read_both(view, path)
    if data is None or not data.strip():
        if backup:
            findings.report("table", path, "the table is missing or empty", _COPY_COUNTS)
        return
    try:
        fastjson.loads(data)
    except (ProtocolError, ValueError) as error:
        remedy = RESTORE_FILE if backup is None else _COPY_COUNTS
        findings.report("table", path, f"the table cannot be read: {error}", remedy)
        return
    if backup:
        _compare_with_backup(findings, path, data, backup)


def _read_both(view: StoreView, path: Path) -> tuple[bytes | None, bytes | None]:
    """Read a table and its backup, again if a running broker saves it meanwhile."""
    data = backup = None
    for _ in range(_TRIES):
        data, backup = _read(path), _read(backup_path(path))
        if not view.is_live or (data, backup) == (_read(path), _read(backup_path(path))):
            break
    return data, backup


def _compare_with_backup(findings: Findings, path: Path, data: bytes, backup: bytes) -> None:
    saved = unseal(backup)
    if saved is None and is_damaged(backup):
        what = "the copy is damaged"
        findings.report("table", backup_path(path), what, "the broker writes it again")
    elif saved is not None and saved.content != data and saved.before != crc32(data):
        findings.report("table", path, "the table differs from what was saved", _EDITED)


def unreadable_tables(files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Return the tables among *files*, by path in the store, that cannot be read.

    The value is the content of the sound copy, or None if the copy cannot be read either.
    """
    found = {}
    names = {name for name in files if name.startswith("config/") and name.endswith(".json")}
    names |= {
        name.removesuffix(".bak")
        for name in files
        if name.endswith(".json.bak") and not _is_replicas(Path(name))
    }
    for name in sorted(names):
        data, backup = files.get(name, b""), files.get(f"{name}.bak")
        if not _is_readable(data) and (data.strip() or backup):
            found[name] = _sound_content(backup)
    return found


def _sound_content(backup: bytes | None) -> bytes | None:
    if backup is None:
        return None
    saved = unseal(backup)
    content = backup if saved is None else saved.content
    return content if _is_readable(content) else None


def _is_readable(data: bytes | None) -> bool:
    try:
        return data is not None and fastjson.loads(data) is not None
    except (ProtocolError, ValueError):
        return False


def _check_records(view: StoreView, findings: Findings, path: Path) -> None:
    data = _read(path) or b""
    for start, end in decode_records(data).damages:
        if end == len(data) and not view.is_clean:
            findings.notes["journals whose end was cut off"] += 1
            continue
        what = f"{end - start} bytes are not valid journal entries"
        findings.report("table", path, what, "the entries around it are used", file_position=start)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except (FileNotFoundError, IsADirectoryError):
        return None
