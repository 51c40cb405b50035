"""Commit a stream's progress for a consumer group that belongs to the query.

If a query committed for the group of an application, the application would continue after the
query's offsets and skip messages. Example: the application stops after 40 of 200 messages, and the
query commits 200. The application then never sees 160 messages. So a query requires a group without
members and offsets. It stores in its checkpoint that it owns the group, and commits only while no
other client does. A query that starts at the group's offsets (startingOffsets=committed) may take
over existing offsets, because it skips no messages before them.
"""

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.positions import Offsets
from rockhopper.pipeline.network.rules import TopicReadRules
from rockhopper.pipeline.network.stream_offset import StreamOffset


class GroupCommits:
    """The commits of one reader."""

    def __init__(self, rules: TopicReadRules, discovery: Discovery) -> None:
        self._rules = rules
        self._discovery = discovery
        self._committed: Offsets = {}

    def advance(self, done: StreamOffset) -> None:
        """Commit *done*, if the options ask for it, and store the group in *done*.

        Raises:
            PipelineError: the group has members, or offsets that the query did not commit.
        """
        if not self._rules.commits:
            return
        if not done.is_fresh and done.offsets == self._committed:
            done.group = self._rules.group
            return
        self._check(done)
        done.group = self._rules.group
        if not done.is_fresh:
            self._discovery.commit(done.offsets)
            self._committed = dict(done.offsets)

    def _check(self, done: StreamOffset) -> None:
        group = self._rules.group
        remedy = (
            "it would make them skip messages to commit for it: set a groupId that only this query "
            "uses, or leave commitOffsets out"
        )
        members = self._discovery.members()
        if members:
            raise PipelineError(f"the group {group!r} has members ({members[0]}), and {remedy}")
        for queue, at in sorted(self._discovery.committed(done.offsets.keys()).items()):
            if not self._is_own(queue, at, done):
                raise PipelineError(
                    f"the group {group!r} stands at offset {at} of {queue}, which this query has "
                    f"not committed, so it is the group of others, and {remedy}"
                )

    def _is_own(self, queue: MessageQueue, at: int, done: StreamOffset) -> bool:
        if done.group != self._rules.group:
            may_begin_there = not done.is_fresh or self._rules.starting.word == "committed"
            return may_begin_there and at == done.offsets[queue]
        if queue in self._discovery.past.ends:
            return True  # the broker truncated its log and reset offsets beyond the new end
        if queue in self._committed:
            return at == self._committed[queue]
        # After a restart: an offset that this query committed, perhaps some batches ago.
        return at <= done.offsets[queue]
