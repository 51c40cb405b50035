"""Find the queues to read, and the start and end offset in each of them."""

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from rockhopper.client.errors import RouteNotFoundError
from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.positions import (
    EARLIEST,
    LATEST,
    Offsets,
    expand_times,
    resolve_json,
)
from rockhopper.pipeline.network.rules import Position, TopicReadRules
from rockhopper.pipeline.network.stream_offset import Place, place_of
from rockhopper.pipeline.options import suggest_near_or_some
from rockhopper.pipeline.pulls import QueuePull
from rockhopper.pipeline.remote import LogPasts, Remote, connect
from rockhopper.pipeline.retrying import is_unknown_topic
from rockhopper.pipeline.store_source.topics import application_topics

# An idle stream asks for the latest offsets a hundred times a second.
ROUTES_KEPT_S = 1.0
ANY_TOPIC = ".*"
SAMPLE_COUNT = 1000
SAMPLE_BYTES = 64 << 10
SAMPLED_QUEUES_MAX = 256


class Discovery:
    """Queries the brokers on behalf of one query. Blocks; every failure is a PipelineError."""

    def __init__(self, rules: TopicReadRules, now_s: Callable[[], float] = time.monotonic) -> None:
        self._rules = rules
        self._now_s = now_s
        self._sizes: dict[MessageQueue, float] = {}
        self._queues: list[MessageQueue] = []
        self._left: frozenset[MessageQueue] = frozenset()
        """Queues that still hold messages after their topic got fewer queues."""
        self.ids: dict[Place, str] = {}
        """The ids that distinguish the topics of ``queues`` from others of the same name.

        An id is blank if the broker has no ids. The ids are queried before ``ranges``, so the
        ranges are at least as new.
        """
        self.read_in: Mapping[str, Sequence[str]] = {}
        """The epochs of each broker's log in which offsets were read: see ``past``."""
        self.past = LogPasts({}, {})
        """The current epochs of the logs, and the ends of queues that were truncated since.

        They are queried before ``ranges``, too.
        """
        self.gone: set[Place] = set()
        """Topics in use that are missing on brokers that are online."""
        self._asked_at_s = -ROUTES_KEPT_S

    @property
    def remote(self) -> Remote:
        """The connection to the brokers."""
        rules = self._rules
        return connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)

    def queues(self, in_use: Collection[Place] = ()) -> list[MessageQueue]:
        """Return the queues to read, at most ``ROUTES_KEPT_S`` seconds old.

        If a topic is *in_use* and missing, failOnDataLoss=false omits it; otherwise the call waits
        for it.

        Raises:
            PipelineError: a named topic or queue does not exist.
        """
        now_s = self._now_s()
        if now_s - self._asked_at_s >= ROUTES_KEPT_S:
            what = f"cannot query the topics at {self._rules.nameserver}"
            self._queues = self._rules.patience(what, lambda: self._ask(in_use))
            self._asked_at_s = now_s
        return list(self._queues)

    def _ask(self, in_use: Collection[Place]) -> list[MessageQueue]:
        queues = self._find({topic for topic, _ in in_use})
        places = {place_of(queue) for queue in queues}
        ids = self.remote.topic_ids(places)
        self.ids = {place: name for place, name in ids.items() if name is not None}
        self.past = self.remote.log_pasts(queues, self.read_in)
        # Name servers may still list a broker that has deleted its part of a topic.
        stale = ids.keys() - self.ids.keys()
        elsewhere = {topic for topic, _ in places - stale}
        left = {place for place in stale if place in in_use or place[0] in elsewhere}
        self.gone = self.remote.gone(set(in_use) - places) | (left & set(in_use))
        return [queue for queue in queues if place_of(queue) not in left]

    def _find(self, in_use: Collection[str]) -> list[MessageQueue]:
        rules = self._rules
        if rules.pattern:
            matches = re.compile(rules.pattern).fullmatch
            topics = application_topics(filter(matches, self.remote.topics()))
            topics += sorted(set(in_use) - set(topics))
        else:
            topics = list(rules.topics or rules.assign)
        found: list[MessageQueue] = []
        for topic, queues in self.remote.queues_of(topics).items():
            if queues:
                found += self._assigned(topic, queues)
                continue
            if topic in in_use and not rules.fail_on_data_loss:
                continue
            if topic in in_use:
                # A broker that restarts takes its topics with it for a moment: waiting may help.
                raise PipelineError(
                    f"the name server {rules.nameserver} knows no topic {topic!r} any more: "
                    "check that its broker runs; if the topic was deleted, set "
                    "failOnDataLoss=false to continue without it"
                ) from RouteNotFoundError(topic)
            if not rules.pattern:
                near = suggest_near_or_some(topic, application_topics(self.remote.topics()))
                raise PipelineError(
                    f"the name server {rules.nameserver} knows no topic {topic!r}{near}: "
                    f"correct the name, create it (rockhopper topic create {topic}), or check "
                    "that its broker runs"
                )
        return found

    def nothing_matches(self) -> str:
        """Return an error text if the pattern matches no topic; else an empty string.

        ``.*`` asks for all topics, so an empty result is fine.
        """
        rules = self._rules
        if rules.pattern in ("", ANY_TOPIC):
            return ""
        near = suggest_near_or_some(rules.pattern, application_topics(self.remote.topics()))
        return (
            f"the option subscribePattern={rules.pattern!r} matches none of the topics that "
            f"the name server {rules.nameserver} knows{near}: correct it (it has to match "
            "whole names, such as orders.*), or create the topic"
        )

    def _assigned(self, topic: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        if not self._rules.assign:
            return queues
        wanted = self._rules.assign[topic]
        brokers = sorted({queue.broker_name for queue in queues})
        if isinstance(wanted, list):
            if len(brokers) > 1:
                raise PipelineError(
                    f"the option assign names no broker for {topic!r}, which is on "
                    f'{", ".join(brokers)}: write {{"{topic}": {{"{brokers[0]}": [0]}}}}'
                )
            wanted = {brokers[0]: wanted}
        if not isinstance(wanted, dict):
            raise PipelineError(
                f"the option assign says {wanted!r} for {topic!r}: set an object such as "
                f'{{"{topic}": {{"broker-a": [0, 1]}}}}'
            )
        chosen: list[MessageQueue] = []
        for broker, numbers in wanted.items():
            for number in numbers if isinstance(numbers, list) else [numbers]:
                chosen.append(_find_queue(topic, queues, broker, number))
        return chosen

    def brokers(self) -> set[str]:
        """Return the names of the brokers that the name server knows."""
        what = f"cannot query the brokers at {self._rules.nameserver}"
        found = self._rules.patience(what, lambda: self.remote.brokers())
        return {each.name for each in found}

    def ranges(self, in_use: Collection[Place] = ()) -> dict[MessageQueue, tuple[int, int]]:
        """Return the current offsets of ``queues``, and of queues left over from larger topics.

        Raises:
            PipelineError: see ``queues``; or the brokers do not answer.
        """

        def attempt() -> dict[MessageQueue, tuple[int, int]]:
            queues = self.queues(in_use)
            try:
                found = self.remote.ranges(queues, with_left=not self._rules.assign)
            except PipelineError as error:
                if not is_unknown_topic(error):
                    raise
                # The topic disappeared after the routes were queried: query them again to decide
                # what to do.
                self._asked_at_s = -ROUTES_KEPT_S
                raise PipelineError(error.sentence) from RouteNotFoundError(error.sentence)
            self._left = frozenset(found.keys() - set(queues))
            return found

        return self._rules.patience("cannot query the offsets of the queues", attempt)

    def unreadable(self, known: Offsets, held: Collection[MessageQueue]) -> Offsets:
        """Return queues that can no longer be read, with their ends; their topics still exist.

        Only queues with messages after their *known* offset are included. Two cases lead to such
        queues: a topic got fewer queues, and Apache's brokers do not serve the others; or *assign*
        names fewer queues than before.
        """
        if self._rules.assign:
            return {}
        there = {place_of(queue) for queue in held}
        asked = [queue for queue in known if queue not in held and place_of(queue) in there]
        ends = self.remote.ends(asked) if asked else {}
        return {queue: end for queue, end in ends.items() if end > known[queue]}

    def committed(self, queues: Collection[MessageQueue]) -> Offsets:
        """Return the committed offsets of the group, for existing queues where it has committed."""
        there = [queue for queue in queues if self._is_there(queue)]
        group = self._rules.group
        found = self._rules.patience(
            f"cannot query the offsets of the group {group!r}",
            lambda: self.remote.committed(group, there),
        )
        # Apache's brokers return 0 if a group has never committed.
        return {queue: at for queue, at in found.items() if at}

    def _is_there(self, queue: MessageQueue) -> bool:
        return queue in self._left or queue in self._queues

    def members(self) -> list[str]:
        """Return the clients that consume for the group now."""
        group, brokers = self._rules.group, {queue.broker_name for queue in self._queues}
        return self._rules.patience(
            f"cannot query the members of the group {group!r}",
            lambda: self.remote.members(group, brokers),
        )

    def commit(self, offsets: Offsets) -> None:
        """Commit *offsets* for the group, for the queues that exist."""
        there = {queue: at for queue, at in offsets.items() if self._is_there(queue)}
        group = self._rules.group
        self._rules.patience(
            f"the offsets of the group {group!r} could not be committed",
            lambda: self.remote.commit(group, there),
        )

    def store_times(self, offsets: Offsets) -> Offsets:
        """Return the store times of the messages at *offsets* that exist."""
        return self._rules.patience(
            "cannot query the times of messages",
            lambda: self.remote.store_times(offsets),
        )

    def offset_at(self, queue: MessageQueue, time_ms: int) -> int:
        """Return the first offset of the queue stored at *time_ms* or later, else its end."""
        return self._rules.patience(
            f"cannot query which offset of {queue} has the time {time_ms} ms",
            lambda: self.remote.offsets_at([queue], time_ms)[queue],
        )

    def start_of_new(
        self, queue: MessageQueue, low: int, held: Mapping[MessageQueue, tuple[int, int]]
    ) -> int:
        """Return the start offset of a queue that appears later than the others."""
        position = self._rules.starting
        time_ms = position.time_ms
        if queue.topic in position.times_ms:
            named = {queue.topic: position.times_ms[queue.topic]}
            option = "startingOffsetsByTimestamp"
            time_ms = resolve_json(option, expand_times(named, held), held).get(queue)
        if time_ms is not None:
            return self.offset_at(queue, time_ms)
        if position.word == "committed":
            committed = self.remote.committed(self._rules.group, [queue])[queue]
            return low if committed is None else committed
        return low

    def starts(self, ranges: Mapping[MessageQueue, tuple[int, int]]) -> Offsets:
        """Return the start offset of each queue."""
        return self._resolve("startingOffsets", self._rules.starting, ranges, EARLIEST)

    def ends(self, ranges: Mapping[MessageQueue, tuple[int, int]]) -> Offsets:
        """Return the end offset of each queue, exclusive."""
        return self._resolve("endingOffsets", self._rules.ending, ranges, LATEST)

    def _resolve(
        self,
        option: str,
        position: Position,
        ranges: Mapping[MessageQueue, tuple[int, int]],
        otherwise: int,
    ) -> Offsets:
        queues = list(ranges)
        if position.time_ms is not None:
            return self._at(queues, position.time_ms, ranges)
        if position.times_ms:
            return self._at_times(option, position, ranges)
        given: Mapping[MessageQueue, int | None] = {}
        if position.offsets:
            given = self._given_offsets(option, position.offsets, queues)
        elif position.word == "committed":
            given = self.remote.committed(self._rules.group, queues)
        elif position.word:
            otherwise = EARLIEST if position.word == "earliest" else LATEST
        resolved: Offsets = {}
        for queue, (low, high) in ranges.items():
            offset = given.get(queue)
            if offset is None:
                offset = otherwise
            resolved[queue] = {EARLIEST: low, LATEST: high}.get(offset, offset)
        return resolved

    def _given_offsets(
        self, option: str, offsets: Mapping[str, Any], queues: list[MessageQueue]
    ) -> Mapping[MessageQueue, int | None]:
        given = resolve_json(option, offsets, queues)
        unnamed = [queue for queue in queues if queue not in given]
        if unnamed and self._rules.is_streaming:
            raise PipelineError(
                f"the option {option} says nothing of {unnamed[0]}: name every queue, with -2 "
                "for its beginning or -1 for its end"
            )
        return given

    def _at_times(
        self,
        option: str,
        position: Position,
        ranges: Mapping[MessageQueue, tuple[int, int]],
    ) -> Offsets:
        name = option.replace("Offsets", "OffsetsByTimestamp")
        wanted = resolve_json(name, expand_times(position.times_ms, ranges), ranges)
        resolved: Offsets = {}
        for queue, (low, high) in ranges.items():
            resolved[queue] = low if option.startswith("starting") else high
            if queue in wanted:
                resolved |= self._at([queue], wanted[queue], ranges)
        return resolved

    def _at(
        self,
        queues: list[MessageQueue],
        time_ms: int,
        ranges: Mapping[MessageQueue, tuple[int, int]],
    ) -> Offsets:
        found = self.remote.offsets_at(queues, time_ms)
        if not self._rules.latest_if_no_time:
            late = [queue for queue in queues if found[queue] >= ranges[queue][1]]
            if late:
                raise PipelineError(
                    f"{late[0]} holds no message from {time_ms} ms on: set an earlier time, or "
                    "startingOffsetsByTimestampStrategy=latest to start such queues at their end"
                )
        return found

    def record_bytes(self, starts: Offsets) -> dict[MessageQueue, float]:
        """Return the mean record size of each queue, sampled from the messages to be read next.

        With many queues, each call samples only some of them, first those not sampled before.
        """
        chosen = sorted(starts, key=lambda queue: queue in self._sizes)[:SAMPLED_QUEUES_MAX]
        for queue in chosen:
            offset = starts[queue]
            wanted = QueuePull(queue, offset, offset + SAMPLE_COUNT, bytes_max=SAMPLE_BYTES)
            sample = self._rules.patience(
                f"{queue} could not be read from offset {offset} on",
                partial(self.remote.read, wanted),
            )
            count = sample.next_offset - offset
            if sample.body and count > 0:
                self._sizes[queue] = len(sample.body) / count
        return self._sizes


def _find_queue(topic: str, queues: list[MessageQueue], broker: str, number: Any) -> MessageQueue:
    for queue in queues:
        if (queue.broker_name, queue.queue_id) == (broker, number):
            return queue
    known = ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in queues)
    raise PipelineError(
        f"the option assign names queue {number!r} of {topic!r} on {broker!r}, "
        f"which does not exist: the topic has {known}"
    )
