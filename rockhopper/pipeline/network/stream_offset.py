"""The offset of a stream, as stored in the checkpoint.

    {"offsets": {…}, "initial": {…}, "added": {…}, "ids": {…}, "times": {…},
     "logs": {…}, "back": {…}, "brokers": […], "startedMs": …, "fresh": true, "group": "…"}

``offsets``, ``initial``, ``added``, ``times`` and ``back`` are topic -> broker -> queue -> number.

``initial`` holds the offsets that the query began with. Spark asks for them several times and does
not store them, and "latest" would give other offsets each time. So every offset carries them. An
offset marked ``fresh`` stands for the ``initial`` of the offset at which the batch ends. ``added``
holds the beginnings of queues that did not exist when the query began, or that belong to a
recreated topic.

``ids`` (topic -> broker -> id) distinguish topics of the same name. For brokers without ids,
``times`` holds the store times of the last messages before the offsets. If these times show that a
topic was recreated, its id becomes ``~`` and a count.

``logs`` (broker -> ids of epochs, newest first) record in which histories of the brokers' logs the
offsets were read. If a log was truncated since (a restored backup, a power cut), ``back`` holds the
start of the batch that detected it; see ``begins``.

``brokers`` lists the brokers that were known when the query began, at ``startedMs`` by the clock of
the driver's host. Older checkpoints lack these fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.network.positions import Offsets, from_document, to_document

Document = dict[str, Any]
Place = tuple[str, str]
"""A topic on a broker."""
GUESSED = "~"


def place_of(queue: MessageQueue) -> Place:
    """Return the place of a queue."""
    return queue.topic, queue.broker_name


def ids_to_document(ids: Mapping[Place, str]) -> dict[str, dict[str, str]]:
    """Return the nested form with sorted keys."""
    document: dict[str, dict[str, str]] = {}
    for topic, broker in sorted(ids):
        document.setdefault(topic, {})[broker] = ids[topic, broker]
    return document


def ids_from_document(document: Mapping[str, Mapping[str, str]]) -> dict[Place, str]:
    """Return the flat form."""
    return {
        (topic, broker): name
        for topic, brokers in document.items()
        for broker, name in brokers.items()
    }


@dataclass
class StreamOffset:
    """The progress of a stream, and the state that it needs to continue."""

    offsets: Offsets
    initial: Offsets
    added: Offsets = field(default_factory=dict)
    ids: dict[Place, str] = field(default_factory=dict)
    times: Offsets = field(default_factory=dict)
    logs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    back: Offsets = field(default_factory=dict)
    brokers: tuple[str, ...] | None = None
    started_ms: int = 0
    is_fresh: bool = False
    group: str = ""
    """The group that this query owns: the query commits for it, and no other client did."""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "StreamOffset":
        """Parse an offset from its document."""
        brokers = document.get("brokers")
        return cls(
            from_document(document["offsets"]),
            from_document(document["initial"]),
            from_document(document["added"]),
            ids_from_document(document.get("ids", {})),
            from_document(document.get("times", {})),
            {broker: tuple(ids) for broker, ids in document.get("logs", {}).items()},
            from_document(document.get("back", {})),
            None if brokers is None else tuple(brokers),
            document.get("startedMs", 0),
            bool(document.get("fresh")),
            document.get("group", ""),
        )

    @property
    def places(self) -> set[Place]:
        """The topics that the stream reads, by broker."""
        return {place_of(queue) for queue in self.offsets}

    def document(self, offsets: Offsets | None = None) -> Document:
        """Return the document, optionally with other *offsets*; Spark compares it as text."""
        document: Document = {
            "added": to_document(self.added),
            "initial": to_document(self.initial),
            "offsets": to_document(self.offsets if offsets is None else offsets),
        }
        if self.ids:
            document["ids"] = ids_to_document(self.ids)
        if self.times:
            document["times"] = to_document(self.times)
        if self.logs:
            document["logs"] = {broker: list(self.logs[broker]) for broker in sorted(self.logs)}
        if self.back:
            document["back"] = to_document(self.back)
        if self.brokers is not None:
            document["brokers"] = list(self.brokers)
            document["startedMs"] = self.started_ms
        if self.is_fresh:
            document["fresh"] = True
        if self.group:
            document["group"] = self.group
        return dict(sorted(document.items()))

    def begins(self, end: "StreamOffset") -> Offsets:
        """Return the start offset of a batch from here to *end*, for each queue of *end*."""
        begin = end.initial if self.is_fresh else self.offsets
        found: Offsets = {}
        for queue, stop in end.offsets.items():
            first = begin.get(queue, end.added.get(queue, stop))
            if not self.is_fresh and self._is_another(end, queue):
                first = end.added.get(queue, 0)
            elif not self.is_fresh and self._is_cut(end, queue):
                first = min(first, end.back[queue])
            # Only the offset shows that the queue was recreated: start at its beginning.
            found[queue] = 0 if first > stop else first
        return found

    def _is_another(self, end: "StreamOffset", queue: MessageQueue) -> bool:
        known, now = self.ids.get(place_of(queue), ""), end.ids.get(place_of(queue), "")
        if now.startswith(GUESSED):
            return known != now
        return bool(self.topic_id(queue)) and bool(now) and known != now

    def _is_cut(self, end: "StreamOffset", queue: MessageQueue) -> bool:
        broker = queue.broker_name
        return queue in end.back and self.logs.get(broker) != end.logs.get(broker)

    def topic_id(self, queue: MessageQueue) -> str:
        """Return the broker's id of the topic of a queue, blank if it has none."""
        found = self.ids.get(place_of(queue), "")
        return "" if found.startswith(GUESSED) else found

    def count_guess(self, place: Place) -> None:
        """Record that a topic was recreated, on a broker without ids."""
        known = self.ids.get(place, "")
        number = int(known.removeprefix(GUESSED)) if known.startswith(GUESSED) else 0
        self.ids[place] = f"{GUESSED}{number + 1}"
