"""The job ``rebuild``: create consume queues and index files from the commit log."""

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from rockhopper.paths import expand_home
from rockhopper.pipeline.derived.geometry import Geometry, find_geometry
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.disk import check_writable, sync
from rockhopper.pipeline.jobs.dispatching import plan_dispatch
from rockhopper.pipeline.jobs.options import RunTasks, job
from rockhopper.pipeline.jobs.rebuilding.assembly import Assembly, QueueNote
from rockhopper.pipeline.jobs.rebuilding.kept_queues import keep_expired_queues
from rockhopper.pipeline.jobs.rebuilding.options import RebuildOptions
from rockhopper.pipeline.jobs.rebuilding.store_lock import lock_store, make_in_use_error
from rockhopper.pipeline.jobs.rebuilding.work import (
    PieceResult,
    PieceTask,
    Worksite,
    build_index_file,
    rebuild_pieces,
)
from rockhopper.pipeline.jobs.results import JobResult, UsageProblem, format_count, format_size
from rockhopper.pipeline.jobs.tasks import runner, size_of
from rockhopper.pipeline.store_source.directory import StoreDirectory, find_commit_log, open_store
from rockhopper.pipeline.store_source.scan import DamagedRange
from rockhopper.protocol.store.store_paths import (
    BATCH_CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_DIRECTORY,
    CONSUME_QUEUE_EXT_DIRECTORY,
    INDEX_DIRECTORY,
    OWN_DIRECTORY,
)

_NEW = (CONSUME_QUEUE_DIRECTORY, BATCH_CONSUME_QUEUE_DIRECTORY, INDEX_DIRECTORY)
_OLD = (*_NEW, CONSUME_QUEUE_EXT_DIRECTORY)
_SHOWN_MAX = 20


@dataclass
class RebuildResult(JobResult):
    """The result of a rebuild, with damages and irregularities."""

    source: str
    output: str
    is_dry_run: bool
    commit_log_start: int
    commit_log_end: int
    task_count: int
    geometry: Geometry
    has_tag_keys: bool
    record_count: int = 0
    size_bytes: int = 0
    undispatched_count: int = 0
    queue_count: int = 0
    unit_count: int = 0
    index_file_count: int = 0
    index_entry_count: int = 0
    kept_queue_count: int = 0
    """Queues without messages in the log: in place, they continue with their old offsets."""
    old_files: str | None = None
    damages: list[DamagedRange] = field(default_factory=list)
    notes: list[QueueNote] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether log and queues are complete."""
        return not self.damages and not self.notes

    def lines(self) -> Iterable[str]:
        """Yield a summary as text."""
        log = f"{self.source}, commit log {self.commit_log_start} to {self.commit_log_end}"
        if self.is_dry_run:
            yield f"Would rebuild {log}, in {format_count(self.task_count, 'task')}"
            yield f"  into     {self.output}"
            yield f"  sizes    {self._sizes()}"
            if self.geometry.index_problem:
                yield self._index_left_out()
            return
        rate = f", {self.record_count / self.seconds:,.0f} a second" if self.seconds > 0 else ""
        yield f"Rebuilt {log}"
        yield (
            f"  read     {format_count(self.record_count, 'record')} "
            f"({format_size(self.size_bytes)}) in {self.seconds:.1f} s{rate}; "
            f"{self.undispatched_count:,} of them belong into no queue"
        )
        yield (
            f"  queues   {format_count(self.queue_count, 'queue')} with "
            f"{format_count(self.unit_count, 'unit')}"
        )
        if self.geometry.index_problem:
            yield self._index_left_out()
        else:
            yield (
                f"  index    {format_count(self.index_file_count, 'file')} with "
                f"{format_count(self.index_entry_count, 'entry', 'entries')}"
            )
        yield f"  into     {self.output}"
        yield f"  sizes    {self._sizes()}"
        if self.kept_queue_count:
            yield (
                f"  kept     {format_count(self.kept_queue_count, 'queue')} whose messages have "
                "all expired, for the next offset"
            )
        if self.old_files:
            yield f"  former files are in {self.old_files}"
        for damage in self.damages[:_SHOWN_MAX]:
            yield (
                f"  damaged  {damage.path}: commit log {damage.start} to {damage.end}: "
                f"{damage.reason}"
            )
        for note in self.notes[:_SHOWN_MAX]:
            count = format_count(note.message_count, "message")
            yield (
                f"  queue    {note.topic}/{note.queue_id}: {count} from queue offset "
                f"{note.queue_offset} on: {note.reason}"
            )
        more = max(len(self.damages) - _SHOWN_MAX, 0) + max(len(self.notes) - _SHOWN_MAX, 0)
        if more:
            yield f"  and {more:,} more; --json has all"

    def _index_left_out(self) -> str:
        problem = self.geometry.index_problem
        return f"  index    not made, and what is there stays as it is: {problem}"

    def _sizes(self) -> str:
        geometry = self.geometry
        if geometry.index_problem:
            return f"queue files of {geometry.queue_file_size_bytes:,} bytes"
        tags = ", with tags" if self.has_tag_keys else ""
        return (
            f"queue files of {geometry.queue_file_size_bytes:,} bytes, index files of "
            f"{geometry.index_slot_count:,} slots and {geometry.index_entry_count_max:,} "
            f"entries{tags}"
        )


@job(RebuildOptions)
def rebuild(asked: RebuildOptions) -> RebuildResult:
    """Create consume queues and index files of the store at *path* from its commit log.

    They go into the new directory *output*. With *in_place* they go into the store itself, and the
    old files are moved aside. By default, sizes and the kind of index are those of the existing
    files. *index_tags* sets whether the index holds tags, as in RocketMQ 5.4 and later. If the
    geometry of the index is neither given nor detected, the index is left unchanged, and the result
    reports it. *run* replaces Spark as the runner of the tasks.

    Raises:
        UsageProblem: arguments contradict each other.
        PipelineError: there is no store, a broker runs on it, sizes do not fit, or files are in the
            way.
    """
    started = datetime.now()
    root, _ = find_commit_log(asked.path)
    target = _target(asked, root)
    store = open_store(asked.path)
    _check_unused(asked, root, store)
    geometry = _find_geometry(asked, root)
    rules, groups = plan_dispatch(asked, root, store, geometry)
    result = RebuildResult(
        str(store.commit_log),
        str(target),
        asked.dry_run,
        store.start_offset,
        store.readable_end,
        len(groups),
        geometry,
        rules.has_tag_keys,
    )
    if asked.dry_run:
        check_writable(target)
        return result
    run = asked.run or runner("rebuild", asked, size_bytes=size_of(groups))
    with ExitStack() as stack:
        if asked.in_place:
            stack.enter_context(lock_store(target))
        stamp = f"{started:%Y%m%d%H%M%S%f}"
        made = target / OWN_DIRECTORY / f"rebuild-{stamp}" if asked.in_place else target
        scratch = made / f"scratch-{stamp}"
        scratch.mkdir(parents=True)
        stack.callback(shutil.rmtree, made if asked.in_place else scratch, ignore_errors=True)
        place = Worksite(made, scratch, geometry, rules)
        tasks = [PieceTask(number, pieces, place) for number, pieces in enumerate(groups)]
        results = run(tasks, rebuild_pieces, "reading the commit log")
        assembly = Assembly(place, tasks, results)
        asked.progress.step("completing the queues")
        assembly.finish_queues()
        entry_counts = _build_index(assembly, geometry, made, run)
        if asked.in_place:
            result.kept_queue_count = keep_expired_queues(target, made, store)
        shutil.rmtree(scratch, ignore_errors=True)
        asked.progress.step("waiting for the disk")
        _sync_all(made)
        if asked.in_place:
            result.old_files = str(_put_in_place(target, made, stamp, geometry))
    _sum_up(result, results)
    result.queue_count, result.unit_count = assembly.queue_count, assembly.unit_count
    result.index_file_count, result.index_entry_count = len(entry_counts), sum(entry_counts)
    result.damages = [damage for damage in assembly.holes if not damage.is_torn_tail]
    result.notes = assembly.notes
    result.seconds = (datetime.now() - started).total_seconds()
    return result


def _check_unused(asked: RebuildOptions, root: Path | None, store: StoreDirectory) -> None:
    if asked.in_place and store.is_live:
        assert root is not None
        raise make_in_use_error(root)


def _find_geometry(asked: RebuildOptions, root: Path | None) -> Geometry:
    geometry = find_geometry(
        root,
        queue_file_size_bytes=asked.queue_file_size,
        batch_queue_file_size_bytes=asked.batch_queue_file_size,
        index_slot_count=asked.index_slots,
        index_entry_count_max=asked.index_entries,
    )
    if geometry.index_problem and asked.index_tags is not None:
        raise PipelineError(geometry.index_problem)
    return geometry


def _build_index(assembly: Assembly, geometry: Geometry, made: Path, run: RunTasks) -> list[int]:
    """Build the index files; return the number of entries of each."""
    tasks = [] if geometry.index_problem else assembly.index_tasks()
    if tasks:
        (made / INDEX_DIRECTORY).mkdir(exist_ok=True)
    counts: list[int] = run(tasks, build_index_file, "building index files")
    return counts


def _sum_up(result: RebuildResult, parts: Sequence[PieceResult]) -> None:
    result.record_count = sum(part.record_count for part in parts)
    result.size_bytes = sum(part.size_bytes for part in parts)
    result.undispatched_count = sum(part.undispatched_count for part in parts)


def _target(asked: RebuildOptions, root: Path | None) -> Path:
    if asked.in_place == (asked.output is not None):
        raise UsageProblem(
            "rebuild needs either --output (output) or --in-place (in_place): give one of the two"
        )
    if asked.in_place:
        if root is None:
            raise UsageProblem(
                f"{asked.path} is a commit log without its store, so nothing can be rebuilt in "
                "place: give the store's root, or an output directory"
            )
        return root
    assert asked.output is not None
    target = expand_home(asked.output).absolute()
    for name in _OLD:
        if (target / name).exists():
            raise PipelineError(
                f"{target} has a directory {name} already: give another output directory, or move "
                "it away"
            )
    if target.is_dir() and any(target.iterdir()):
        raise PipelineError(
            f"{target} is not empty: give an output directory that is new, so that nothing but "
            "queues and index is in it"
        )
    return target


def _put_in_place(root: Path, made: Path, stamp: str, geometry: Geometry) -> Path:
    """Move the old directories aside and the new ones in; return where the old ones are."""
    replaced = [name for name in _OLD if name != INDEX_DIRECTORY or not geometry.index_problem]
    aside = root / OWN_DIRECTORY / f"before-rebuild-{stamp}"
    aside.mkdir()
    for name in replaced:
        if (root / name).exists():
            os.rename(root / name, aside / name)
    for name in _NEW:
        if (made / name).exists():
            os.rename(made / name, root / name)
    for directory in (aside, root):
        sync(directory)
    return aside


def _sync_all(directory: Path) -> None:
    """Sync all files below *directory*, and their directory entries, to disk."""
    for parent, _, names in os.walk(directory):
        for name in names:
            sync(Path(parent) / name)
        sync(Path(parent))
