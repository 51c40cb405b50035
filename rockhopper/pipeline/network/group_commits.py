"""Commits of what a stream is done with, for a group that is the query's own.

An application whose group a query commits for goes on behind what the query has read, and never
sees what is in front of it: after 40 of 200 messages it stops, the query commits 200, and 160 are
skipped. So a query takes a group that has no members and no offsets, notes in its checkpoint that
the group is its own, and commits while nobody else does. A query that starts where its group stands
(startingOffsets=committed) may take the offsets that are there: nothing is in front of them.
"""

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.positions import Offsets
from rockhopper.pipeline.network.rules import Rules
from rockhopper.pipeline.network.stream_offset import StreamOffset


class GroupCommits:
    """Those of one reader."""

    def __init__(self, rules: Rules, discovery: Discovery) -> None:
        self._rules = rules
        self._discovery = discovery
        self._committed: Offsets = {}

    def advance(self, done: StreamOffset) -> None:
        """Commit that everything up to *done* is done, if the options say so, and note the group.

        Raises:
            PipelineError: the group has members, or offsets that the query did not write.
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
            return True  # the broker took offsets back that are beyond the end of a shorter log
        if queue in self._committed:
            return at == self._committed[queue]
        # After a restart: what it has committed, perhaps some batches ago.
        return at <= done.offsets[queue]
