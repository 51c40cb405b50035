"""Archiving topics over the network: which ranges of which queues, and what a task does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from client.queues import MessageQueue
from pipeline.errors import PipelineError
from pipeline.jobs.archiving.manifest import Positions
from pipeline.jobs.archiving.selection import Selection
from pipeline.jobs.archiving.writing import FILE_COLUMNS, SplitWriter, WriteTarget, WrittenSplit
from pipeline.network.discovery import Discovery
from pipeline.network.planning import Range
from pipeline.network.positions import from_document, to_document
from pipeline.network.reading import read_ranges
from pipeline.network.rules import Rules, read_rules


@dataclass(frozen=True)
class NetworkTask:
    """What one task archives; travels to the workers."""

    number: int
    ranges: tuple[Range, ...]
    rules: Rules
    target: WriteTarget


def archive_ranges(task: NetworkTask) -> WrittenSplit:
    """Write the messages of a task's ranges.  Raises PipelineError."""
    writer = SplitWriter(task.target, task.number)
    for wanted in task.ranges:
        for batch in read_ranges((wanted,), task.rules):
            if batch.num_rows:
                writer.add(wanted.queue.topic, batch)
    return writer.finish()


def rules_for(nameserver: str, selection: Selection, *, allow_gaps: bool) -> Rules:
    """The rules to read topics by.  Raises PipelineError."""
    which = (
        {"subscribe": ",".join(selection.topics)}
        if selection.topics
        else {"subscribePattern": selection.pattern or ".*"}
    )
    options = {
        "nameServer": nameserver,
        "columns": ",".join(FILE_COLUMNS),
        "failOnDataLoss": "false" if allow_gaps else "true",
        **which,
    }
    return read_rules(options, streaming=False)


def new_ranges(rules: Rules, archived: Positions) -> list[Range]:
    """What is in the queues and not in the archive.

    Raises:
        PipelineError: a topic does not exist, or a queue does not go on where the archive ends.
    """
    discovery = Discovery(rules)
    positions = from_document(archived)
    found = []
    for queue, (low, high) in sorted(discovery.ranges().items()):
        begin = positions.get(queue, low)
        if begin > high:
            raise PipelineError(
                f"{queue} ends at offset {high}, and the archive goes to {begin} already: the "
                "topic was made anew, so archive it into another directory"
            )
        if begin < low and rules.fail_on_data_loss:
            raise PipelineError(
                f"{queue} begins at offset {low}, and the archive ends at {begin}: messages in "
                "between have expired on the broker; add --allow-gaps to go on without them"
            )
        if max(begin, low) < high or queue not in positions:
            found.append(Range(queue, max(begin, low), high))
    return found


def advanced(archived: Positions, ranges: list[Range]) -> Positions:
    """The positions after all *ranges*."""
    positions: dict[MessageQueue, int] = from_document(archived)
    positions.update({each.queue: each.end for each in _last(ranges).values()})
    return to_document(positions)


def _last(ranges: list[Range]) -> Mapping[MessageQueue, Range]:
    return {each.queue: each for each in sorted(ranges, key=lambda one: (one.queue, one.end))}
