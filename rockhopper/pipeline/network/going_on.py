"""Adjust a stream's offset to queues that were deleted, recreated, restored, renamed or added.

A recreated topic has another id. Apache's brokers have no ids, so this module guesses: if the queue
still holds the message before the offset, its store time must be unchanged.
"""

import logging
from collections.abc import Collection, Mapping

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.positions import Offsets
from rockhopper.pipeline.network.rules import TopicReadRules
from rockhopper.pipeline.network.stream_offset import GUESSED, Place, StreamOffset, place_of

_log = logging.getLogger(__name__)

Held = Mapping[MessageQueue, tuple[int, int]]


class GoingOn:
    """Updates a stream's offset to the queues that the brokers hold now; one for each reader."""

    def __init__(self, rules: TopicReadRules, discovery: Discovery) -> None:
        self._rules = rules
        self._discovery = discovery
        self._warned: set[tuple[Place, str]] = set()
        self._is_first = True

    def adjust(self, at: StreamOffset, held: Held, target: Offsets | None) -> None:
        """Change *at* where its queues have changed; *target* limits which new queues are added.

        Raises:
            PipelineError: this would lose messages, and failOnDataLoss is set.
        """
        self._rename(at)
        self._leave_gone(at)
        self._report_unreadable(at, held)
        remade = self._remade(at, held)
        self._forget_remade(at, remade)
        self._go_back(at)
        for queue, (low, high) in held.items():
            if queue not in at.offsets and (target is None or queue in target):
                is_anew = place_of(queue) in remade
                begin = low if is_anew else self._begin_of_new(queue, low, at, held)
                at.offsets[queue] = at.added[queue] = begin
                if at.is_fresh:
                    at.initial[queue] = begin
            elif at.offsets.get(queue, 0) > high and not self._rules.fail_on_data_loss:
                at.offsets[queue] = low  # the topic was recreated
        self._is_first = False

    def _forget_remade(self, at: StreamOffset, remade: Collection[Place]) -> None:
        """Forget the positions in topics that were recreated, and note the ids of all topics."""
        for queue in [queue for queue in at.offsets if place_of(queue) in remade]:
            for kept in (at.offsets, at.initial if at.is_fresh else {}, at.times):
                kept.pop(queue, None)
        for place, name in self._discovery.ids.items():
            if name:
                at.ids[place] = name
            elif place in remade:
                at.count_guess(place)

    def _rename(self, at: StreamOffset) -> None:
        """Continue queues whose broker was renamed; the unique ids of topics identify them."""
        names = {name: place for place, name in self._discovery.ids.items() if name}
        for (topic, broker), name in sorted(at.ids.items()):
            now = names.get(name)
            if now is None or now[0] != topic or now in at.ids:
                continue
            if (topic, broker) in self._discovery.ids:
                continue
            _log.warning("the broker %s of the topic %s is called %s now", broker, topic, now[1])
            _rename_queues(at, (topic, broker), now[1])
            at.ids[now] = at.ids.pop((topic, broker))
            if broker in at.logs:
                at.logs.setdefault(now[1], at.logs[broker])

    def _go_back(self, at: StreamOffset) -> None:
        """If a broker's log was truncated, move offsets beyond the truncation point back to it."""
        past = self._discovery.past
        for queue, end in past.ends.items():
            if end < at.offsets.get(queue, 0):
                _log.warning(
                    "%s: this query has read up to offset %d, and the log of its broker has "
                    "ended at %d since (a restored backup, a power cut); it continues there",
                    queue,
                    at.offsets[queue],
                    end,
                )
                at.offsets[queue] = at.back[queue] = end
                at.times.pop(queue, None)
                if at.is_fresh:
                    at.initial[queue] = end
        at.logs |= past.epochs

    def _leave_gone(self, at: StreamOffset) -> None:
        """Drop topics that are missing on brokers that are online."""
        for place in sorted(self._discovery.gone & at.places):
            if self._rules.wants_topic(place[0]):
                self._lost(place, "no longer exists", "continue without it", at)
            for queue in [queue for queue in at.offsets if place_of(queue) == place]:
                del at.offsets[queue]
                at.times.pop(queue, None)
            at.ids.pop(place, None)

    def _report_unreadable(self, at: StreamOffset, held: Held) -> None:
        for queue, end in sorted(self._discovery.unreadable(at.offsets, held.keys()).items()):
            said = (
                f"{queue} is no longer read: its topic now has fewer queues, and its broker "
                f"does not serve the others: this query has read up to {at.offsets[queue]} of "
                f"{end}"
            )
            if self._rules.fail_on_data_loss:
                raise PipelineError(
                    f"{said}; give the topic its queues back until they are read, or set "
                    "failOnDataLoss=false to continue without the rest"
                )
            if (place_of(queue), said) not in self._warned:
                self._warned.add((place_of(queue), said))
                _log.warning("%s", said)

    def _remade(self, at: StreamOffset, held: Held) -> set[Place]:
        ids = self._discovery.ids
        found = {
            place
            for place, name in at.ids.items()
            if not name.startswith(GUESSED) and ids.get(place, name) not in ("", name)
        }
        found |= self._guessed(at, held)
        for place in sorted(found):
            self._lost(place, "was deleted and recreated", "read it from its beginning on", at)
        return found

    def _guessed(self, at: StreamOffset, held: Held) -> set[Place]:
        asked: dict[MessageQueue, int] = {}
        for queue, time_ms in at.times.items():
            if queue not in held or self._discovery.ids.get(place_of(queue)):
                continue
            low, high = held[queue]
            begin = at.offsets.get(queue, 0)
            if time_ms and low < begin <= high and (self._is_first or high > begin):
                asked[queue] = begin - 1
        found = self._discovery.store_times(asked) if asked else {}
        return {place_of(queue) for queue, now_ms in found.items() if now_ms != at.times[queue]}

    def mark(self, at: StreamOffset, ends: Offsets, held: Held) -> None:
        """Store the times of the last messages before *ends*, for topics without ids."""
        asked: dict[MessageQueue, int] = {}
        for queue, end in ends.items():
            if queue not in held:
                continue
            if at.topic_id(queue):
                at.times.pop(queue, None)
            elif end != at.offsets.get(queue) or queue not in at.times:
                at.times.pop(queue, None)
                if held[queue][0] < end:
                    asked[queue] = end - 1
        if asked:
            at.times |= self._discovery.store_times(asked)

    def _lost(self, place: Place, what: str, remedy: str, at: StreamOffset) -> None:
        topic, broker = place
        ends = (f"{q.queue_id}/{at.offsets[q]}" for q in sorted(at.offsets) if place_of(q) == place)
        said = (
            f"the topic {topic!r} on {broker} {what}, and this query has read that one (up to "
            f"queue/offset {', '.join(ends)})"
        )
        if self._rules.fail_on_data_loss:
            raise PipelineError(
                f"{said}: set failOnDataLoss=false to {remedy}, or start with a new checkpoint"
            )
        if (place, what) not in self._warned:
            self._warned.add((place, what))
            _log.warning("%s: %s, because failOnDataLoss=false", said, remedy)

    def _begin_of_new(self, queue: MessageQueue, low: int, at: StreamOffset, held: Held) -> int:
        """Return the start offset in a queue that the query did not know.

        If the queue is new, the query reads it from its beginning. If its broker was offline when
        the query began, the queue may hold older messages; then the start options apply.
        """
        if self._rules.starting.word != "latest":
            return self._discovery.start_of_new(queue, low, held)
        if at.brokers is None or queue.broker_name in at.brokers:
            return low
        return self._discovery.offset_at(queue, at.started_ms)


def _rename_queues(at: StreamOffset, place: Place, broker_name: str) -> None:
    for queue in [queue for queue in at.offsets if place_of(queue) == place]:
        renamed = queue._replace(broker_name=broker_name)
        at.added[renamed] = at.offsets[renamed] = at.offsets.pop(queue)
        for kept in (at.initial, at.times):
            if queue in kept:
                kept[renamed] = kept.pop(queue)
