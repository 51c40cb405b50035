"""The topics that a run archives, and how far a broker's log is archived for each of them.

A selection has a name, its *key*: ``*`` for all topics, ``~REGEX`` for topics that match, or a
topic's own name. A log position stores, for each key, the offset up to which all its messages are
archived. So a run with another selection begins at the offset that it needs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from rockhopper.pipeline.jobs.results import UsageProblem
from rockhopper.protocol.names import is_system_topic, topic_error

ALL = "*"


@dataclass(frozen=True)
class Selection:
    """Topics by name, or by a pattern, or all.

    Patterns and ``*`` leave out RocketMQ's own topics, and names that begin with ``%`` (retry and
    dead-letter topics); these can be chosen by name.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""

    def __post_init__(self) -> None:
        if self.topics and self.pattern:
            raise UsageProblem("topics and a pattern are mutually exclusive: leave one out")
        for topic in self.topics:
            if (problem := topic_error(topic)) is not None:
                raise UsageProblem(f"invalid topic {topic!r}: {problem}")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageProblem(
                f"the pattern {self.pattern!r} is not a valid regular expression ({error}): "
                "correct it"
            ) from None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of the selection in a log position."""
        if self.topics:
            return self.topics
        return (f"~{self.pattern}",) if self.pattern else (ALL,)

    @property
    def is_all(self) -> bool:
        """Whether all topics are chosen."""
        return not self.topics and not self.pattern

    def chooses(self, topic: str) -> bool:
        """Return whether a topic is chosen."""
        return any(_covers(key, topic) for key in self.keys)

    def start(self, archived: Mapping[str, int]) -> int:
        """Return the log offset at which a run begins."""
        if self.topics:
            return min(find_archived_end(archived, topic) for topic in self.topics)
        return max(archived.get(self.keys[0], 0), archived.get(ALL, 0))

    def advanced(self, archived: Mapping[str, int], end: int) -> dict[str, int]:
        """Return the positions after a run that reached *end*."""
        found = {**archived, **dict.fromkeys(self.keys, end)}
        whole = found.get(ALL, -1)
        return {
            key: offset
            for key, offset in found.items()
            if key == ALL or offset > whole or not _is_covered(key)
        }


def find_archived_end(archived: Mapping[str, int], topic: str) -> int:
    """Return the offset up to which all messages of a topic are archived."""
    return max((offset for key, offset in archived.items() if _covers(key, topic)), default=0)


def _covers(key: str, topic: str) -> bool:
    if key == ALL or key.startswith("~"):
        return _is_covered(topic) and (key == ALL or re.fullmatch(key[1:], topic) is not None)
    return key == topic


def _is_covered(topic: str) -> bool:
    return not is_system_topic(topic) and not topic.startswith("%")
