"""The invariants, which hold at every moment regardless of machines, network and engine.

Only two kinds of elections may lose confirmed messages: one that an operator forced, and one after
a power cut of all in-sync replicas if the settings permit it. From the epoch of such an election a
new truth applies, with the same requirements as the first. Masters of smaller epochs that have not
heard of it may still confirm messages; these belong to the older truth.
"""

from itertools import pairwise

from rockhopper.broker.replication.election.epochs import Epoch
from tests.simulation.replica import Entry, Node


class Violation(AssertionError):
    """A rule was broken."""


class Truth:
    """Everything confirmed and read since an election that might lose messages."""

    def __init__(
        self, epoch: int, before: "Truth | None" = None, *, by_operator: bool = False
    ) -> None:
        self.epoch = epoch
        """The first epoch that belongs to it."""
        self.entries: list[Entry] = []
        self.is_known = before is None
        """Whether a replica has already led; its log then shows the messages that are left."""
        self.by_operator = by_operator
        self.is_apart = False
        """Whether its first master's log had been discarded before: it cannot be compared."""
        self._before = before
        self._seen_epoch = 0
        self._seen_offset = 0
        self._queue: dict[int, int] = {}

    def differs_from(self, node: Node, start: int, end: int) -> bool:
        """Return whether a replica's log between two offsets differs from this truth."""
        start = max(start, node.disk.log_start)
        return node.disk.log[start:end] != self.entries[start:end]

    def begin_with(self, node: Node) -> int:
        """Copy the part of the previous truth that an unclean master has; return what it lacks."""
        before = self._before
        while before and not before.is_known:
            before = before._before
        assert before
        log, start = node.disk.log, node.disk.log_start
        end = start
        while end < min(len(log), len(before.entries)) and log[end] == before.entries[end]:
            end += 1
        known = before.entries[:end]
        self.entries = [
            known[index] if index < len(known) and entry.id < 0 else entry
            for index, entry in enumerate(log[:end])
        ]
        # A seeded replica that has received nothing yet does not know the queue's end.
        self._queue = {entry.queue_offset: entry.id for entry in log[:end] if entry.id >= 0}
        self._seen_epoch, self._seen_offset = self.epoch, min(before._seen_offset, end)
        self.is_known = True
        self.is_apart = node.disk.epochs[0].number >= self.epoch
        return len(before.entries) - end

    def extend(self, entries: list[Entry]) -> None:
        """Add the entries that a master has confirmed."""
        for entry in entries:
            if self._queue.setdefault(entry.queue_offset, entry.id) != entry.id:
                raise Violation(f"queue offset {entry.queue_offset} stands for two messages")
        self.entries.extend(entries)

    def read(self, epoch: int, offset: int) -> None:
        """Check that a consumer still sees what it read; reads follow masters of larger epochs."""
        if epoch < self._seen_epoch:
            return
        if offset < self._seen_offset:
            raise Violation(
                f"a consumer that saw {self._seen_offset} sees {offset} in epoch {epoch}"
            )
        self._seen_epoch, self._seen_offset = epoch, offset


class Rules:
    """The truths, and the master of each epoch."""

    def __init__(self) -> None:
        self.truths = [Truth(0)]
        self.masters: dict[int, tuple[int, str]] = {}
        self.acknowledged = 0
        self.lost = 0
        """The number of messages lost by elections that operators forced."""

    def truth_of(self, epoch: int) -> Truth:
        """Return the truth that an epoch belongs to."""
        return next(each for each in reversed(self.truths) if each.epoch <= epoch)

    def gave_up(self, epoch: int, *, by_operator: bool) -> None:
        """Note that messages may be missing from an epoch on."""
        self.truths.append(Truth(epoch, self.truths[-1], by_operator=by_operator))

    def confirmed(self, node: Node, epoch: int, offset: int, *, is_master: bool) -> None:
        """Check that a replica's confirmed messages really are; only a master adds new ones."""
        log, truth = node.disk.log, self.truth_of(epoch)
        if offset > len(log):
            raise Violation(f"replica {node.id} confirms {offset} of {len(log)}")
        if node.checked_epoch != truth.epoch:
            node.checked, node.checked_epoch = node.disk.log_start, truth.epoch
        known = min(offset, len(truth.entries))
        if truth.differs_from(node, node.checked, known):
            raise Violation(f"replica {node.id} differs from what was confirmed before {known}")
        if offset > len(truth.entries):
            if not is_master:
                raise Violation(f"replica {node.id} shows what no master has confirmed")
            new = log[len(truth.entries) : offset]
            truth.extend(new)
            self.acknowledged += len(new)
        node.checked = max(node.checked, offset)

    def elected(self, node: Node, epoch: int) -> None:
        """Check that an epoch has one master, whose log has everything confirmed."""
        who = (node.id, node.incarnation)
        if self.masters.setdefault(epoch, who) != who:
            raise Violation(f"epoch {epoch} has two masters, {self.masters[epoch]} and {who}")
        truth = self.truth_of(epoch)
        if not truth.is_known:
            self.lost += truth.begin_with(node)
        if truth.differs_from(node, 0, len(truth.entries)):
            raise Violation(f"replica {node.id} leads epoch {epoch} without all that was confirmed")

    def read(self, epoch: int, offset: int) -> None:
        """Check a consumer's read; see Truth."""
        self.truth_of(epoch).read(epoch, offset)

    def fenced(self, node: Node, replicated_offset: int, text: str) -> None:
        """Check that a replica stays out only because an operator's election discarded its log.

        After a power cut of all replicas, none has messages that the one with the longest log
        lacks.
        """
        if not any(truth.by_operator for truth in self.truths) or not any(
            truth.is_known and (truth.is_apart or truth.differs_from(node, 0, replicated_offset))
            for truth in self.truths
        ):
            raise Violation(text)


def check_epochs(epochs: tuple[Epoch, ...]) -> None:
    """Check that the epochs and offsets of a table increase."""
    for before, after in pairwise(epochs):
        if before.number >= after.number or before.start_offset > after.start_offset:
            raise Violation(f"a table of epochs that does not grow: {epochs}")
