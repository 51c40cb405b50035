"""Which topics a run archives, and how far the log of a broker is archived for each of them.

What was chosen has a name, its *key*: ``*`` for all topics, ``~REGEX`` for those that match, and a
topic's own name. A log position says for each key up to where every message that it chooses is
archived; so a run that chooses others begins where they need it to.
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

    Patterns and all leave out what is RocketMQ's own, and names that begin with ``%`` (retry and
    dead-letter topics): those are chosen by name.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""

    def __post_init__(self) -> None:
        if self.topics and self.pattern:
            raise UsageProblem("topics and a pattern exclude each other: leave one out")
        for topic in self.topics:
            if (problem := topic_error(topic)) is not None:
                raise UsageProblem(f"there can be no topic {topic!r}: {problem}")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise UsageProblem(
                f"the pattern {self.pattern!r} is no regular expression ({error}): correct it"
            ) from None

    @property
    def keys(self) -> tuple[str, ...]:
        """What positions are kept by."""
        if self.topics:
            return self.topics
        return (f"~{self.pattern}",) if self.pattern else (ALL,)

    @property
    def is_all(self) -> bool:
        """Whether all topics are chosen."""
        return not self.topics and not self.pattern

    def chooses(self, topic: str) -> bool:
        """Whether a topic is among them."""
        return any(_covers(key, topic) for key in self.keys)

    def start(self, archived: Mapping[str, int]) -> int:
        """Where in the log a run has to begin."""
        if self.topics:
            return min(archived_up_to(archived, topic) for topic in self.topics)
        return max(archived.get(self.keys[0], 0), archived.get(ALL, 0))

    def advanced(self, archived: Mapping[str, int], end: int) -> dict[str, int]:
        """The positions after a run that got to *end*."""
        found = {**archived, **dict.fromkeys(self.keys, end)}
        whole = found.get(ALL, -1)
        return {
            key: offset
            for key, offset in found.items()
            if key == ALL or offset > whole or not _is_covered(key)
        }


def archived_up_to(archived: Mapping[str, int], topic: str) -> int:
    """Up to where every message of a topic is archived."""
    return max((offset for key, offset in archived.items() if _covers(key, topic)), default=0)


def _covers(key: str, topic: str) -> bool:
    if key == ALL or key.startswith("~"):
        return _is_covered(topic) and (key == ALL or re.fullmatch(key[1:], topic) is not None)
    return key == topic


def _is_covered(topic: str) -> bool:
    return not is_system_topic(topic) and not topic.startswith("%")
