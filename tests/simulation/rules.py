"""What must hold at every moment, whatever happens to machines, network and engine."""

from itertools import pairwise

from rockhopper.broker.ha.epochs import Epoch
from tests.simulation.replica import Entry, Node


class Violation(AssertionError):
    """A rule was broken."""


class Rules:
    """All that was ever confirmed, and what was seen."""

    def __init__(self) -> None:
        self.truth: list[Entry] = []
        self.masters: dict[int, tuple[int, str]] = {}
        self.acknowledged = 0
        self._seen_epoch = 0
        self._seen_offset = 0
        self._queue: dict[int, int] = {}

    def confirmed(self, node: Node, offset: int, *, is_master: bool) -> None:
        """What a replica takes for confirmed is what was; only a master adds to it."""
        log = node.disk.log
        if offset > len(log):
            raise Violation(f"replica {node.id} confirms {offset} of {len(log)}")
        start = max(node.checked, node.disk.log_start)
        known = min(offset, len(self.truth))
        if log[start:known] != self.truth[start:known]:
            raise Violation(f"replica {node.id} differs from what was confirmed before {known}")
        if offset > len(self.truth):
            if not is_master:
                raise Violation(f"replica {node.id} shows what no master has confirmed")
            self._extend(log[len(self.truth) : offset])
        node.checked = max(node.checked, offset)

    def _extend(self, entries: list[Entry]) -> None:
        for entry in entries:
            if self._queue.setdefault(entry.queue_offset, entry.id) != entry.id:
                raise Violation(f"queue offset {entry.queue_offset} stands for two messages")
        self.truth.extend(entries)
        self.acknowledged += len(entries)

    def elected(self, node: Node, epoch: int) -> None:
        """An epoch has one master, whose log has all that was confirmed."""
        who = (node.id, node.incarnation)
        if self.masters.setdefault(epoch, who) != who:
            raise Violation(f"epoch {epoch} has two masters, {self.masters[epoch]} and {who}")
        start = node.disk.log_start
        if node.disk.log[start : len(self.truth)] != self.truth[start:]:
            raise Violation(f"replica {node.id} leads epoch {epoch} without all that was confirmed")

    def read(self, epoch: int, offset: int) -> None:
        """What a consumer saw stays: it follows masters of larger epochs."""
        if epoch < self._seen_epoch:
            return
        if offset < self._seen_offset:
            raise Violation(
                f"a consumer that saw {self._seen_offset} sees {offset} in epoch {epoch}"
            )
        self._seen_epoch, self._seen_offset = epoch, offset


def check_epochs(epochs: tuple[Epoch, ...]) -> None:
    """A table's epochs and offsets grow."""
    for before, after in pairwise(epochs):
        if before.number >= after.number or before.start_offset > after.start_offset:
            raise Violation(f"a table of epochs that does not grow: {epochs}")
