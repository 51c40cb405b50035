"""Whether the commit log is where it should be: asked when a store is opened.

A disk that is not mounted, a setting that names another directory and a directory that was deleted
all look like a store that never held a message. Going on would rebuild queues and index from
nothing, which deletes them, and give out their offsets again. So a log without a record is refused
beside anything that says there was one, before a file is changed:

    units of consume queues         whoever wrote them
    rockhopper/inventory.json       the log's end when the store was last whole
    rockhopper/checkpoint           up to where the log was flushed

Units alone prove nothing about a log of zeros that was ours under ASYNC_FLUSH: after a power cut in
the first moments of a store they may be on disk and the records not. The first file of a log is
durable before a message is taken, so a log without files is never that.

``<root>/rockhopper/commit-log-directory`` tells tools, which have the root alone, where the log is
when it is elsewhere: one line, an absolute path.
"""

from collections.abc import Iterable

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_start import has_log
from rockhopper.broker.store.log.log_tail import is_all_zeros
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.lookups import record_at
from rockhopper.protocol.store.store_paths import (
    COMMIT_LOG_DIRECTORY,
    COMMIT_LOG_DIRECTORY_FILE,
)

log = structlog.get_logger("broker.store")


def check_finished(layout: StoreLayout) -> None:
    """See that the store was made to its end, if a tool made it.

    Raises:
        StoreError: it was not: what is there is a part, and looks like a store that lost the rest.
    """
    if layout.unfinished.exists():
        raise StoreError(
            f"the store in {layout.root} is not whole: a 'store restore' or 'store repair' that "
            "makes it is at work or was cut off. Run that again to its end, or remove the directory"
        )


def see_store(layout: StoreLayout, *, must_exist: bool) -> None:
    """Warn that a store is about to be made, where there is none.

    Raises:
        StoreError: there is none and *must_exist*; nothing was changed.
    """
    if layout.lock.exists() or layout.checkpoint.exists() or has_log(layout.commit_log):
        return
    if must_exist:
        raise StoreError(
            f"there is no store in {layout.root}, and storeMustExist=true: mount its disk, or "
            "check storePathRootDir. To begin a new store there, start once without storeMustExist"
        )
    log.warning(
        "creating a new, empty store: if a store should be here, stop the broker and mount its "
        "disk",
        path=str(layout.root),
    )


def check_place(layout: StoreLayout) -> None:
    """See that storePathCommitLog names a directory that can hold the log, and the only one.

    Raises:
        StoreError: it does not.
    """
    log_directory, root = layout.commit_log.resolve(), layout.root.resolve()
    usual = root / COMMIT_LOG_DIRECTORY
    if log_directory == usual.resolve():
        return
    for taken in (
        layout.consume_queues,
        layout.batch_consume_queues,
        layout.consume_queue_exts,
        layout.index,
        layout.timer_log,
        layout.config,
        layout.own,
    ):
        if log_directory == root or log_directory.is_relative_to(taken.resolve()):
            raise StoreError(
                f"storePathCommitLog names {layout.commit_log}, where the store keeps other files: "
                "give the commit log a directory of its own"
            )
    if has_log(usual):
        raise StoreError(
            f"there are commit log files in {usual}, and storePathCommitLog names "
            f"{layout.commit_log}: Rockhopper before 0.2.0 ignored the setting and wrote to the "
            "former. Remove the setting, or move those files to where it points; if they are not "
            "this store's, move them away"
        )


def check_is_there(
    layout: StoreLayout,
    files: MappedFileQueue,
    queues: Iterable[UnitQueue],
    noted: Inventory | None,
    checkpoint: StoreCheckpoint,
) -> None:
    """See that the loaded log is not empty although it held messages.

    Raises:
        CorruptFileError: it is; nothing was changed.
    """
    log_min = files.min_offset
    if record_at(files, log_min) is not None or not all(map(is_all_zeros, files.files)):
        return
    reached = max(checkpoint.flushed_offset, noted.log_end if noted is not None else 0)
    if reached > log_min:
        evidence = f"it was on disk up to offset {reached}"
    else:
        proves_nothing = noted is not None and not noted.is_sync
        if files.files and proves_nothing:
            return
        queue = next((queue for queue in queues if queue.reaches_beyond(log_min)), None)
        if queue is None:
            return
        evidence = f"the consume queue in {queue.directory} holds messages"
    what = "hold nothing but zeros" if files.files else "are not there"
    raise CorruptFileError(
        layout.commit_log,
        f"the files of the commit log {what}, but {evidence}. Check that its disk is mounted and "
        f"that storePathCommitLog is right{_last_place(layout)}, and restore the files. To begin "
        f"with an empty store, move {layout.root} away",
    )


def _last_place(layout: StoreLayout) -> str:
    try:
        known = (layout.own / COMMIT_LOG_DIRECTORY_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" (the log was in {known} before)" if known != str(layout.commit_log.resolve()) else ""


def note_place(layout: StoreLayout) -> None:
    """Tell tools where the log is, if not below the root.

    Raises:
        OSError: what they were told before still stands.
    """
    path = layout.own / COMMIT_LOG_DIRECTORY_FILE
    place = layout.commit_log.resolve()
    if place == (layout.root / COMMIT_LOG_DIRECTORY).resolve():
        disk.remove_files([path])
        return
    line = f"{place}\n".encode()
    if not path.is_file() or path.read_bytes() != line:
        disk.make_directories_durably(layout.own)
        disk.write_atomically(path, line)
