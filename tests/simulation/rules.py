"""What must hold at every moment, whatever happens to machines, network and engine.

An election that an operator forced may lose what was confirmed, or one after a power cut of all in
sync where the settings let it, and these alone: from its epoch on
another truth holds, of which everything is demanded that is demanded of the first. What masters of
smaller epochs go on to confirm, who have not heard of it, belongs to the older one.
"""

from itertools import pairwise

from rockhopper.broker.replication.election.epochs import Epoch
from tests.simulation.replica import Entry, Node


class Violation(AssertionError):
    """A rule was broken."""


class Truth:
    """All that was ever confirmed, and what was seen, since an election that might lose."""

    def __init__(
        self, epoch: int, before: "Truth | None" = None, *, by_operator: bool = False
    ) -> None:
        self.epoch = epoch
        """The first that belongs to it."""
        self.entries: list[Entry] = []
        self.is_known = before is None
        """Whether somebody led already, whose log says what is left."""
        self.by_operator = by_operator
        self.is_apart = False
        """Whether its first master's log had been given up before: it cannot be compared."""
        self._before = before
        self._seen_epoch = 0
        self._seen_offset = 0
        self._queue: dict[int, int] = {}

    def differs_from(self, node: Node, start: int, end: int) -> bool:
        """Whether a replica's log, between two offsets, is not this."""
        start = max(start, node.disk.log_start)
        return node.disk.log[start:end] != self.entries[start:end]

    def begin_with(self, node: Node) -> int:
        """Be what the log of an unclean master has of the truth before; return what it lacks."""
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
        # Who was seeded, and got nothing yet, does not know how far the queue was.
        self._queue = {entry.queue_offset: entry.id for entry in log[:end] if entry.id >= 0}
        self._seen_epoch, self._seen_offset = self.epoch, min(before._seen_offset, end)
        self.is_known = True
        self.is_apart = node.disk.epochs[0].number >= self.epoch
        return len(before.entries) - end

    def extend(self, entries: list[Entry]) -> None:
        """Take what a master has confirmed."""
        for entry in entries:
            if self._queue.setdefault(entry.queue_offset, entry.id) != entry.id:
                raise Violation(f"queue offset {entry.queue_offset} stands for two messages")
        self.entries.extend(entries)

    def read(self, epoch: int, offset: int) -> None:
        """What a consumer saw stays: it follows masters of larger epochs."""
        if epoch < self._seen_epoch:
            return
        if offset < self._seen_offset:
            raise Violation(
                f"a consumer that saw {self._seen_offset} sees {offset} in epoch {epoch}"
            )
        self._seen_epoch, self._seen_offset = epoch, offset


class Rules:
    """The truth, and who led when."""

    def __init__(self) -> None:
        self.truths = [Truth(0)]
        self.masters: dict[int, tuple[int, str]] = {}
        self.acknowledged = 0
        self.lost = 0
        """What the elections that operators forced have cost."""

    def truth_of(self, epoch: int) -> Truth:
        """The truth that an epoch belongs to."""
        return next(each for each in reversed(self.truths) if each.epoch <= epoch)

    def gave_up(self, epoch: int, *, by_operator: bool) -> None:
        """Take note that from an epoch on something may be missing."""
        self.truths.append(Truth(epoch, self.truths[-1], by_operator=by_operator))

    def confirmed(self, node: Node, epoch: int, offset: int, *, is_master: bool) -> None:
        """What a replica takes for confirmed is what was; only a master adds to it."""
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
        """An epoch has one master, whose log has all that was confirmed."""
        who = (node.id, node.incarnation)
        if self.masters.setdefault(epoch, who) != who:
            raise Violation(f"epoch {epoch} has two masters, {self.masters[epoch]} and {who}")
        truth = self.truth_of(epoch)
        if not truth.is_known:
            self.lost += truth.begin_with(node)
        if truth.differs_from(node, 0, len(truth.entries)):
            raise Violation(f"replica {node.id} leads epoch {epoch} without all that was confirmed")

    def read(self, epoch: int, offset: int) -> None:
        """See Truth."""
        self.truth_of(epoch).read(epoch, offset)

    def fenced(self, node: Node, confirmed_offset: int, text: str) -> None:
        """A replica takes no part because an operator's election gave up what it has.

        After a power cut of all nobody has what the one with the longest log has not.
        """
        if not any(truth.by_operator for truth in self.truths) or not any(
            truth.is_known and (truth.is_apart or truth.differs_from(node, 0, confirmed_offset))
            for truth in self.truths
        ):
            raise Violation(text)


def check_epochs(epochs: tuple[Epoch, ...]) -> None:
    """A table's epochs and offsets grow."""
    for before, after in pairwise(epochs):
        if before.number >= after.number or before.start_offset > after.start_offset:
            raise Violation(f"a table of epochs that does not grow: {epochs}")
