"""``store rebuild``: consume queues and index made anew from the log.

What is there is moved to ``<root>/rockhopper/rebuild``, and the store opened as a broker opens one
whose queues and index are gone. Where the queues ended is noted first, in the inventory: queues of
which the log has nothing any more go on there. A crash in between costs nothing but time: the next
rebuild goes on, and so does the next start of the broker.
"""

import shutil

from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.store.files import disk
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.broker.store.files.lock_file import StoreLock
from rockhopper.broker.store.recovering import inventory, log_presence
from rockhopper.broker.store.recovering.inventory import Inventory, QueueKey
from rockhopper.broker.store.recovering.recovery_report import RecoveryReport
from rockhopper.broker.tools.mending import recovered
from rockhopper.broker.tools.mending.room import room
from rockhopper.broker.tools.store_view import StoreView

_ASIDE = "rebuild"
_GOES_ON = "Free some room, and run this again or start the broker: both go on from here"


def rebuild(view: StoreView) -> RecoveryReport:
    """Make queues and index of a stopped store anew.

    Raises:
        StoreLockedError: a broker serves it.
        StoreError: it cannot be opened, or there is no room.
        OSError: the disk is failing; the next try goes on.
    """
    layout = view.layout
    refuse_unfit_log(view)
    config = recovered.sized_like(view.config, recovered.file_sizes(view), view.geometry)
    with room(layout.root, _needed_bytes(view), _GOES_ON, freed=layout.own / _ASIDE):
        with StoreLock(layout.root, layout.lock, layout.abort):
            _note_ends(view)
            _move_aside(layout)
        report = recovered.recover(config)
    shutil.rmtree(layout.own / _ASIDE, ignore_errors=True)
    return report


def refuse_unfit_log(view: StoreView) -> None:
    """See that a broker opens the log as it is, before anything is moved. Raises StoreError."""
    if len(view.log_directories) > 1:
        raise StoreError(
            "a log that is divided over directories is not opened for writing: move its files "
            "together, or make a store with one directory by 'store repair'"
        )
    if odd := [each for each in view.problems if each.is_refused]:
        raise StoreError(
            f"{odd[0].path}: {odd[0].reason}, and no broker opens the log as long as it is there: "
            "restore it or move it away, or make a store without it by 'store repair'"
        )
    log_presence.check_is_there(view.layout, view.log, (), view.noted, view.checkpoint)
    if not view.log.files:
        raise StoreError(f"there is no commit log in {view.layout.commit_log}: nothing to read")


def _needed_bytes(view: StoreView) -> int:
    """What the queues take at least, those that are there: they stay until the new ones are."""
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
    """The ends of queues of which the log has no message any more."""
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
            disk.move_directory(directory, aside / directory.name)
