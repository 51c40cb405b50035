"""``store rebuild``: create consume queues and index again from the log.

The existing ones are moved to ``<root>/rockhopper/rebuild``. Then the store is opened like a broker
opens one whose queues and index are missing. Before that, the ends of the queues are written to the
inventory, so that queues without messages in the log continue there. After a crash, the next
rebuild or the next start of the broker continues the work; only time is lost.
"""

import shutil

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.store.recovering import inventory
from rockhopper.broker.store.recovering.inventory import Inventory, QueueKey
from rockhopper.broker.store.recovering.opening_checks import check_log_exists
from rockhopper.broker.store.recovering.recovery import RecoveryReport
from rockhopper.broker.tools.repair import recovered
from rockhopper.broker.tools.repair.room import room
from rockhopper.broker.tools.store_view import StoreView

_ASIDE = "rebuild"
_GOES_ON = "Free some space, then run this again or start the broker: both continue from here"


def rebuild(view: StoreView) -> RecoveryReport:
    """Create queues and index of a stopped store again.

    Raises:
        StoreLockedError: a broker is running on it.
        StoreError: it cannot be opened, or there is no room.
        OSError: the disk is failing; the next try continues.
    """
    layout = view.layout
    refuse_unfit_log(view)
    config = recovered.copy_sizes(view.config, recovered.file_sizes(view), view.geometry)
    with room(layout.root, _compute_needed_bytes(view), _GOES_ON, freed=layout.own / _ASIDE):
        with StoreLock(layout.root, layout.lock, layout.abort):
            _note_ends(view)
            _move_aside(layout)
        report = recovered.recover(config)
    shutil.rmtree(layout.own / _ASIDE, ignore_errors=True)
    return report


def refuse_unfit_log(view: StoreView) -> None:
    """Check that a broker can open the log, before anything is moved. Raises StoreError."""
    if len(view.log_directories) > 1:
        raise StoreError(
            "a log in several directories cannot be opened for writing: move its files into "
            "one directory, or write a new store with 'store repair'"
        )
    if odd := [each for each in view.problems if each.is_refused]:
        raise StoreError(
            f"{odd[0].path}: {odd[0].reason}, and no broker opens the log while the file is "
            "there: restore it, move it away, or write a new store without it with 'store "
            "repair'"
        )
    check_log_exists(view.layout, view.log, (), view.noted, view.checkpoint)
    if not view.log.files:
        raise StoreError(
            f"there is no commit log in {view.layout.commit_log}: name the directory of a store"
        )


def _compute_needed_bytes(view: StoreView) -> int:
    """Return the minimum size of the queues; the old ones stay until the new ones exist."""
    count = 0
    for topic, queue_id, is_batch in view.queues:
        queue = view.queues.open(topic, queue_id, is_batch=is_batch)
        first, end = queue.range_from(view.log.min_offset)
        count += (end - first) * queue.unit.size
    return count


def _note_ends(view: StoreView) -> None:
    noted = view.noted or Inventory(0, None, {})
    ends = dict(noted.queue_ends) | _ends_of_expired(view)
    sizes = recovered.file_sizes(view)
    noted = noted._replace(queue_ends=ends, index_end=None, queue_starts={}, file_sizes=sizes)
    inventory.save(view.layout, noted)


def _ends_of_expired(view: StoreView) -> dict[QueueKey, int]:
    """Return the ends of queues that have no messages in the log."""
    found: dict[QueueKey, int] = {}
    for topic, queue_id, is_batch in view.queues:
        queue = view.queues.open(topic, queue_id, is_batch=is_batch)
        first, end = queue.range_from(view.log.min_offset)
        if end and first == end:
            found[topic, queue_id] = end
    return found


def _move_aside(layout: StoreLayout) -> None:
    aside = layout.own / _ASIDE
    shutil.rmtree(aside, ignore_errors=True)
    disk.make_directories_durably(aside)
    disk.remove_files([layout.index_to_rebuild])
    for directory in (layout.index, layout.batch_consume_queues, layout.consume_queues):
        if directory.is_dir():
            disk.move(directory, aside / directory.name)
