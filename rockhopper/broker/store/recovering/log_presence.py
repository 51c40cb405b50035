"""Check that the commit log is where it should be, when a store is opened.

An unmounted disk, a setting that names another directory and a deleted directory all look like a
store that never held a message. A start would rebuild queues and index from nothing, which deletes
them, and would assign their offsets again. So a log without a record is refused, before any file is
changed, if one of these shows that it had records:

    units of consume queues         written by any broker
    rockhopper/inventory.json       the log's end when the store was last complete
    rockhopper/checkpoint           up to where the log was flushed

Units alone prove nothing about a log of zeros that was ours under ASYNC_FLUSH: after a power cut in
the first moments of a store, the units may be on disk and the records not. The first file of a log
is durable before the first message is accepted, so this never excuses a log without files.

If the log is not below the root, ``<root>/rockhopper/commit-log-directory`` holds its absolute
path, in one line, for tools that know only the root.
"""

from collections.abc import Iterable

import structlog

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.checkpoint import StoreCheckpoint
from rockhopper.broker.store.files.errors import CorruptFileError, StoreError
from rockhopper.broker.store.files.mapped_file_queue import MappedFileQueue
from rockhopper.broker.store.log.log_start import has_log
from rockhopper.broker.store.queues.unit_queue import UnitQueue
from rockhopper.broker.store.recovering.inventory import Inventory
from rockhopper.broker.store.recovering.log_walk import is_all_zeros
from rockhopper.broker.store.recovering.lookups import record_at
from rockhopper.protocol.store.store_paths import (
    COMMIT_LOG_DIRECTORY,
    COMMIT_LOG_DIRECTORY_FILE,
)

log = structlog.get_logger("broker.store")


def check_store_finished(layout: StoreLayout) -> None:
    """Check that the tool that makes the store has finished.

    Raises:
        StoreError: it has not finished; its files would look like a store that lost the others.
    """
    if layout.unfinished.exists():
        raise StoreError(
            f"the store in {layout.root} is incomplete: a 'store restore' or 'store repair' is "
            "creating it, or was interrupted. Run that again to its end, or remove the directory"
        )


def check_store_exists(layout: StoreLayout, *, must_exist: bool) -> None:
    """Warn if there is no store, so that a new one will be made.

    Raises:
        StoreError: there is none and *must_exist* is set; nothing was changed.
    """
    if layout.lock.exists() or layout.checkpoint.exists() or has_log(layout.commit_log):
        return
    if must_exist:
        raise StoreError(
            f"there is no store in {layout.root}, and storeMustExist=true: mount its disk, or "
            "check storePathRootDir. To create a new store there, start once without "
            "storeMustExist"
        )
    log.warning(
        "creating a new, empty store: if a store should be here, stop the broker and mount its "
        "disk",
        path=str(layout.root),
    )


def check_log_directory(layout: StoreLayout) -> None:
    """Check that storePathCommitLog names the only log, in a directory that can hold it.

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
                f"storePathCommitLog names {layout.commit_log}, where the store keeps other "
                "files: give the commit log its own directory"
            )
    if has_log(usual):
        raise StoreError(
            f"there are commit log files in {usual}, but storePathCommitLog names "
            f"{layout.commit_log}: Rockhopper before 0.2.0 ignored the setting and wrote to the "
            "former. Remove the setting, or move those files to its directory; if they do not "
            "belong to this store, move them away"
        )


def check_log_exists(
    layout: StoreLayout,
    files: MappedFileQueue,
    queues: Iterable[UnitQueue],
    noted: Inventory | None,
    checkpoint: StoreCheckpoint,
) -> None:
    """Check that the loaded log is not empty although it once held messages.

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
        evidence = f"the consume queue in {queue.directory} contains messages"
    what = "contain nothing but zeros" if files.files else "are not there"
    raise CorruptFileError(
        layout.commit_log,
        f"the files of the commit log {what}, but {evidence}. Check that its disk is mounted and "
        f"that storePathCommitLog is right{_former_directory(layout)}, and restore the files. To "
        f"start with an empty store, move {layout.root} away",
    )


def _former_directory(layout: StoreLayout) -> str:
    try:
        known = (layout.own / COMMIT_LOG_DIRECTORY_FILE).read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return f" (the log was in {known} before)" if known != str(layout.commit_log.resolve()) else ""


def save_log_directory(layout: StoreLayout) -> None:
    """Record where the log is, for tools, if it is not below the root.

    Raises:
        OSError: the former record is unchanged.
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
