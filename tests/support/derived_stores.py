"""Stores with queues and an index for jobs over files, and how to compare and damage them."""

from pathlib import Path
from typing import Any

from rockhopper.broker.store.message_store import MessageStore
from rockhopper.pipeline.jobs.auditing.job import audit
from rockhopper.pipeline.jobs.auditing.result import AuditResult
from rockhopper.pipeline.jobs.tasks import run_in_this_process
from tests.support import open_stores
from tests.support.peers import Clock

GEOMETRY: dict[str, Any] = {"index_slots": 16, "index_entries": 400}
APACHE_GEOMETRY: dict[str, Any] = {"index_slots": 64, "index_entries": 400}
QUEUE_SIZES: dict[str, Any] = {"queue_file_size": 20 * 50, "batch_queue_file_size": 46 * 20}


def write_store(root: Path, count: int = 200, clock: Clock | None = None) -> Path:
    """Write a Rockhopper store, stopped cleanly: three queues, keys and tags, also unusual ones."""
    clock = clock or Clock()
    store = open_stores.open_store(root, clock)
    fill(store, clock, count)
    open_stores.close(store)
    return root


def fill(store: MessageStore, clock: Clock, count: int) -> None:
    """Put messages of several kinds."""
    for number in range(count):
        clock.advance(40)
        topic = "Schlüssel" if number % 7 == 0 else f"Topic{number % 2}"
        properties = [f"UNIQ_KEY\x01UK{number:06d}"]
        if number % 3:
            properties.append(
                f"KEYS\x01k{number} kk  größe{number}" if number % 5 else "KEYS\x01x "
            )
        if number % 4:
            properties.append(f"TAGS\x01tag{number % 4}")
        open_stores.put(
            store,
            b"body %d" % number,
            "Topic2" if topic == "Schlüssel" else topic,
            number % 2,
            "\x02".join(properties) + ("\x02" if number % 6 else ""),
        )


def audited(root: Path, **options: Any) -> AuditResult:
    """Audit without Spark."""
    return audit(str(root), run=run_in_this_process, **{**GEOMETRY, **options})


def derive(root: Path) -> None:
    """Create queues and index, as a broker that opens the store."""
    open_stores.close(open_stores.open_store(root))


def queue_files(root: Path) -> dict[str, bytes]:
    """Return every file of every consume queue, by its path in the store."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for name in ("consumequeue", "batchconsumequeue")
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    }


def index_files(root: Path) -> list[bytes]:
    """Return every index file, oldest first."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]
