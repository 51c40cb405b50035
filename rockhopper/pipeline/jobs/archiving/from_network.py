"""Archive topics over the network: the ranges of the queues, and the work of a task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.access import list_access_options
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.manifest import Reached
from rockhopper.pipeline.jobs.archiving.selection import Selection
from rockhopper.pipeline.jobs.archiving.writing import (
    FILE_COLUMNS,
    SplitWriter,
    WriteTarget,
    WrittenSplit,
)
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.planning import Range
from rockhopper.pipeline.network.positions import from_document, to_document
from rockhopper.pipeline.network.reading import read_ranges
from rockhopper.pipeline.network.rules import TopicReadRules, read_rules
from rockhopper.pipeline.network.stream_offset import (
    ids_from_document,
    ids_to_document,
    place_of,
)


@dataclass(frozen=True)
class NetworkWork:
    """The work and the rules of the tasks; Spark sends it to the workers."""

    rules: TopicReadRules
    target: WriteTarget

    def __call__(self, task: tuple[int, tuple[Range, ...]]) -> WrittenSplit:
        """Write the messages of a task's ranges. Raises PipelineError."""
        number, ranges = task
        writer = SplitWriter(self.target, number)
        for topic, same in groupby(ranges, lambda wanted: wanted.queue.topic):
            for batch in read_ranges(tuple(same), self.rules):
                if batch.num_rows:
                    writer.write_batch(topic, batch)
        return writer.finish()


def rules_for(
    nameserver: str,
    selection: Selection,
    *,
    allow_gaps: bool,
    columns: Sequence[str] = FILE_COLUMNS,
) -> TopicReadRules:
    """Return the rules for reading the selected topics. Raises PipelineError."""
    which = (
        {"subscribe": ",".join(selection.topics)}
        if selection.topics
        else {"subscribePattern": selection.pattern or ".*"}
    )
    options = {
        "nameServer": nameserver,
        "columns": ",".join(columns),
        **which,
        **list_access_options(),
    }
    options["failOnDataLoss"] = "false" if allow_gaps else "true"
    return read_rules(options, streaming=False)


def find_new_ranges(
    rules: TopicReadRules, archived: Reached, say: Callable[[str], None] = lambda _: None
) -> tuple[list[Range], Reached]:
    """Return the ranges that are not archived yet, and the positions after them.

    Raises:
        PipelineError: a topic does not exist or was recreated, or a queue does not continue where
            the archive ends.
    """
    discovery = Discovery(rules)
    discovery.read_in = archived.logs
    positions = from_document(archived.positions)
    held = discovery.ranges()
    _say_what_is_gone(discovery, positions, held, say)
    _check_same(discovery, archived, positions, held)
    _check_logs(discovery, positions)
    _check_readable(discovery, positions, held, say, fails=rules.fail_on_data_loss)
    found = []
    for queue, (low, high) in sorted(held.items()):
        begin = positions.get(queue, low)
        if begin > high:
            raise PipelineError(
                f"{queue} ends at offset {high}, and the archive goes to {begin} already: the "
                "topic was recreated, so archive it into another directory"
            )
        if begin < low and rules.fail_on_data_loss:
            raise PipelineError(
                f"{queue} begins at offset {low}, and the archive ends at {begin}: messages in "
                "between have expired on the broker; add --allow-gaps to continue without them"
            )
        if max(begin, low) < high or queue not in positions:
            topic_id = discovery.ids.get(place_of(queue), "")
            found.append(Range(queue, max(begin, low), high, topic_id))
    return found, _find_reached(discovery, archived, found)


def _say_what_is_gone(
    discovery: Discovery,
    positions: Mapping[MessageQueue, int],
    held: Mapping[MessageQueue, object],
    say: Callable[[str], None],
) -> None:
    """Report the topics that were deleted on only some of their brokers."""
    there = {place_of(queue) for queue in held}
    topics = {topic for topic, _ in there}
    known = {place_of(queue) for queue in positions if queue.topic in topics}
    for topic, broker in sorted(discovery.remote.gone(known - there)):
        say(
            f"the topic {topic!r} was deleted on {broker}: what was not archived of it is lost, "
            "and its other brokers are archived"
        )


def _check_same(
    discovery: Discovery,
    archived: Reached,
    positions: Mapping[MessageQueue, int],
    held: Mapping[MessageQueue, tuple[int, int]],
) -> None:
    """Check that topics are the ones that were archived. Raises PipelineError."""
    known_ids = ids_from_document(archived.topic_ids)
    another = {
        place
        for place, topic_id in discovery.ids.items()
        if topic_id and known_ids.get(place, topic_id) != topic_id
    }
    times = from_document(archived.times)
    asked = {
        queue: positions[queue] - 1
        for queue in times.keys() & positions.keys() & held.keys()
        if held[queue][0] < positions[queue] <= held[queue][1]
        and not discovery.ids.get(place_of(queue))
    }
    if asked:
        found = discovery.store_times(asked)
        another |= {place_of(queue) for queue, at_ms in found.items() if at_ms != times[queue]}
    _check_names(discovery, known_ids)
    if another:
        topic, broker = min(another)
        raise PipelineError(
            f"the topic {topic!r} on {broker} was deleted and recreated since it was archived, "
            "and its messages have the numbers of those in the archive: archive it into "
            "another directory"
        )


def _check_names(discovery: Discovery, known_ids: Mapping[tuple[str, str], str]) -> None:
    """Check that no broker was renamed since the archive was written. Raises PipelineError."""
    names = {name: place for place, name in discovery.ids.items() if name}
    for (topic, broker), name in sorted(known_ids.items()):
        now = names.get(name)
        if now is not None and now not in known_ids and now[0] == topic:
            raise PipelineError(
                f"the broker {broker} that the topic {topic!r} was archived from is called "
                f"{now[1]} now, and its messages would come into the archive twice: give it its "
                "former name again, or archive it into another directory"
            )


def _check_logs(discovery: Discovery, positions: Mapping[MessageQueue, int]) -> None:
    """Check that no log was truncated below its archived end. Raises PipelineError."""
    for queue, end in sorted(discovery.past.ends.items()):
        if end < positions.get(queue, 0):
            raise PipelineError(
                f"{queue} is archived up to offset {positions[queue]}, and the log of its broker "
                f"has ended at {end} since (a restored backup, a power cut): its new messages "
                "have the numbers of others in the archive, so archive it into another directory"
            )


def _check_readable(
    discovery: Discovery,
    positions: dict[MessageQueue, int],
    held: Mapping[MessageQueue, object],
    say: Callable[[str], None],
    *,
    fails: bool,
) -> None:
    """Report archived queues that can no longer be read; if *fails*, raise PipelineError."""
    for queue, end in sorted(discovery.unreadable(positions, held.keys()).items()):
        said = (
            f"{queue} is archived up to {positions[queue]} of {end}, and is no longer read: "
            "its topic now has fewer queues, and its broker does not serve the others"
        )
        if fails:
            raise PipelineError(
                f"{said}: give the topic its queues back until they are archived, or add "
                "--allow-gaps to continue without the rest"
            )
        say(said)


def _find_reached(discovery: Discovery, archived: Reached, ranges: list[Range]) -> Reached:
    """Return the positions after all *ranges*, and the topics that they belong to."""
    positions = from_document(archived.positions)
    positions |= {each.queue: each.end for each in ranges}
    ids = ids_from_document(archived.topic_ids)
    ids |= {place: name for place, name in discovery.ids.items() if name}
    times = from_document(archived.times)
    asked = {
        each.queue: each.end - 1
        for each in ranges
        if each.begin < each.end and not ids.get(place_of(each.queue))
    }
    if asked:
        times |= discovery.store_times(asked)
    times = {queue: at_ms for queue, at_ms in times.items() if not ids.get(place_of(queue))}
    logs = {**archived.logs, **discovery.past.epochs}
    return Reached(to_document(positions), ids_to_document(ids), to_document(times), logs)
