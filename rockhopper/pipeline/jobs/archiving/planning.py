"""Plan a run of ``archive``: the parts of a log, or the ranges of queues."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving import from_files, from_network
from rockhopper.pipeline.jobs.archiving.manifest import LogPosition, Manifest, Reached
from rockhopper.pipeline.jobs.archiving.options import ArchiveOptions
from rockhopper.pipeline.jobs.archiving.writing import FILE_COLUMNS
from rockhopper.pipeline.network.planning import Range
from rockhopper.pipeline.network.planning import plan as plan_ranges
from rockhopper.pipeline.remote import connect
from rockhopper.pipeline.store_source.directory import StoreDirectory, find_commit_log, open_store
from rockhopper.pipeline.store_source.pieces import FilePiece
from rockhopper.pipeline.store_source.rules import StoreReadRules
from rockhopper.pipeline.store_source.splits import data_bytes
from rockhopper.pipeline.store_source.splits import plan as plan_pieces
from rockhopper.pipeline.store_source.topics import check_topics

_SMALL_BYTES = 8 << 20
_SMALL_MESSAGES = 20_000


@dataclass(frozen=True)
class ArchivePlan:
    """The plan of a run."""

    source: dict[str, Any]
    store: StoreDirectory | None = None
    pieces: Sequence[tuple[FilePiece, ...]] = ()
    archived: Mapping[str, int] = field(default_factory=dict)
    start: int = 0
    ranges: Sequence[Range] = ()
    reached: Reached = field(default_factory=Reached)
    """How far queues are archived after the run."""
    rules: Any = None
    away: Sequence[str] = ()
    """Brokers that may have messages and are offline."""

    @property
    def waiting(self) -> dict[str, int]:
        """The number of messages by topic, if known in advance."""
        counts: Counter[str] = Counter()
        for each in self.ranges:
            counts[each.queue.topic] += each.count
        return {topic: count for topic, count in sorted(counts.items()) if count}

    @property
    def shares(self) -> list[tuple[Range, ...]]:
        """The ranges of each task."""
        return [each.ranges for each in plan_ranges(list(self.ranges), None, None)]

    @property
    def is_small(self) -> bool:
        """Whether the work takes less time than starting Spark."""
        pieces = [piece for group in self.pieces for piece in group]
        return (
            sum(map(data_bytes, pieces)) <= _SMALL_BYTES
            and sum(self.waiting.values()) <= _SMALL_MESSAGES
        )


def plan_run(asked: ArchiveOptions, current: Manifest | None) -> ArchivePlan:
    """Plan a run from the source and the archive's state. Raises PipelineError."""
    logs = {} if current is None else current.log_positions
    reached = Reached() if current is None else current.reached
    if asked.path is not None:
        asked.progress.step(f"looking at {asked.path}")
        _check_from_files(asked.broker_name, reached)
        return replace(_plan_files(asked, str(asked.path), logs), reached=reached)
    asked.progress.step(f"asking {asked.source}")
    plan = _plan_network(asked, reached)
    both = {each.queue.broker_name for each in plan.ranges} & set(logs)
    if both or "" in logs:
        raise PipelineError(
            _refuse_mixed(min(both, default="a store without a name"), "from files")
        )
    return plan


def _check_from_files(broker_name: str, reached: Reached) -> None:
    over_network = {broker for brokers in reached.positions.values() for broker in brokers}
    if over_network & {broker_name} or (over_network and not broker_name):
        raise PipelineError(_refuse_mixed(broker_name or min(over_network), "over the network"))


def _refuse_mixed(broker: str, how: str) -> str:
    return (
        f"this archive has messages of {broker} that were read {how}, and what was read both "
        "ways would be there twice: continue that way, name the store's broker with "
        "--broker-name if it is another, or archive into another directory"
    )


def _plan_files(
    asked: ArchiveOptions, path: str, positions: Mapping[str, LogPosition]
) -> ArchivePlan:
    store = open_store(path)
    position = positions.get(asked.broker_name)
    archived: Mapping[str, int] = {}
    if position is not None:
        from_files.check_same_log(store, position, asked.broker_name)
        archived = position.offsets
    # An archived topic may have been deleted since.
    check_topics(find_commit_log(path)[0], set(asked.selection.topics) - archived.keys())
    start = asked.selection.start(archived)
    if start and start < store.start_offset and store.segments and not asked.allow_gaps:
        raise PipelineError(
            f"the archive ends at {start} of the log, and the log starts at "
            f"{store.start_offset}: messages in between have expired; add --allow-gaps to "
            "continue without them"
        )
    start = max(start, store.start_offset)
    rules = StoreReadRules(
        path,
        FILE_COLUMNS,
        split_size_bytes=asked.split_size_bytes,
        start_offset=min(start, store.end_offset) or None,
        broker_name=asked.broker_name,
        corrupt_records="skip" if asked.corrupt == "skip" else "fail",
        fail_on_data_loss=not asked.allow_gaps,
    )
    pieces = spell_options(lambda: plan_pieces(store, rules, os.cpu_count() or 1))
    source = {
        "kind": "store",
        "path": str(Path(path).absolute()),
        "broker": asked.broker_name,
        "keys": list(asked.selection.keys),
        "start": start,
    }
    return ArchivePlan(source, store, pieces, archived, start, rules=rules)


def _plan_network(asked: ArchiveOptions, archived: Reached) -> ArchivePlan:
    assert asked.nameserver is not None
    rules = from_network.rules_for(asked.nameserver, asked.selection, allow_gaps=asked.allow_gaps)
    known = {
        broker
        for topic, brokers in archived.positions.items()
        if asked.selection.chooses(topic)
        for broker in brokers
    }
    remote = connect(asked.nameserver)
    away = remote.away(known)
    ranges, reached = from_network.find_new_ranges(rules, archived, asked.progress.say)
    # A broker may have stopped before its queues were read, or may be back.
    away = sorted({*away, *remote.away(known)} - set(asked.without))
    keys = list(asked.selection.keys)
    source = {"kind": "network", "nameserver": asked.nameserver, "keys": keys, "away": away}
    return ArchivePlan(source, ranges=ranges, reached=reached, rules=rules, away=away)


def spell_options(ask: Any) -> Any:
    """Return the result of *ask*; errors name the job's options instead of the source's."""
    try:
        return ask()
    except PipelineError as error:
        sentence = error.sentence.replace("corruptRecords=skip", "--corrupt skip")
        sentence = sentence.replace(
            ", or with corruptRecords=column to see each such place as a row", ""
        )
        sentence = sentence.replace("failOnDataLoss=false", "--allow-gaps")
        raise PipelineError(sentence) from error
