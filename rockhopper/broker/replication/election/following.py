"""A follower's connection to its master: greet, vote, truncate the log, then acknowledge.

The follower acknowledges nothing until its log is known to be a prefix of the master's. It takes
nothing from a master whose epoch is smaller than the follower's voted epoch, and sends that master
the larger epoch.
"""

from dataclasses import replace

from rockhopper.broker.replication.election.actions import (
    Action,
    Alarm,
    Close,
    Confirm,
    Cut,
    NoteClean,
    Open,
    SendMessage,
    StoreVotedEpoch,
)
from rockhopper.broker.replication.election.epochs import Epoch
from rockhopper.broker.replication.election.messages import (
    Ack,
    Beat,
    Hello,
    Message,
    Refused,
    Welcome,
)
from rockhopper.broker.replication.election.replica_set import Replica
from rockhopper.broker.replication.election.replica_state import ReplicaState
from rockhopper.broker.replication.election.timing import Timing

REFUSED_AGAIN_MS = 50


class Following:
    """The connection to the master, or the attempt to open one."""

    def __init__(
        self, replica_state: ReplicaState, timing: Timing, out: list[Action], now_ms: int
    ) -> None:
        self.replica_state = replica_state
        self._timing = timing
        self.out = out
        self.master: Replica | None = None
        self.link: int | None = None
        self.epoch = 0
        """The epoch of the master whose log contains this one; 0 until that is known."""
        self.heard_at_ms = now_ms
        """When a replica last spoke as a master, or when this replica began to wait for one."""
        self.led_at_ms: int | None = None
        """When a replica last spoke as a master, or this replica stopped leading; None at first."""
        self.refusals = 0
        """How many times in a row the master's machine refused the connection.

        This means that no process listens there.
        """
        self.larger_epoch = 0
        """The largest epoch that any replica reported to have voted for."""
        self.elected_epoch = 0
        """The largest epoch seen in the engine: a master of a smaller epoch was deposed."""
        self._opening: int | None = None
        """The id of the replica to which a connection is being opened.

        A process that hangs can accept a connection and stay silent for long. Connecting to the
        next master does not wait for it.
        """
        self._open_at_ms = now_ms
        self._link_heard_at_ms = now_ms
        self._welcome: Welcome | None = None
        self.is_noting_clean = False

    def follow(self, master: Replica, now_ms: int) -> None:
        """Connect to *master*, or keep trying."""
        if master != self.master:
            self.leave()
            self.master, self.refusals, self._open_at_ms = master, 0, now_ms
            self._opening = None
        if self.link is not None and now_ms - self._link_heard_at_ms >= self._timing.connection_ms:
            self.leave()
        if self.link is None and self._opening is None and now_ms >= self._open_at_ms:
            self._opening = master.id
            self.out.append(Open(master.id))

    def leave(self) -> None:
        """Close the connection and stop acknowledging to this master."""
        if self.link is not None:
            self.out.append(Close(self.link))
        self.link, self.epoch, self._welcome = None, 0, None
        self.is_noting_clean = False

    def forget_master(self) -> None:
        """Leave the master, and drop a connection attempt too."""
        self.leave()
        self.master = None

    def opened(self, link: int, replica_id: int, now_ms: int) -> None:
        """Send the greeting."""
        if replica_id == self._opening:
            self._opening = None
        if self.master is None or replica_id != self.master.id or self.link is not None:
            self.out.append(Close(link))
            return
        self.link, self._link_heard_at_ms, self.refusals = link, now_ms, 0
        self._say(self.hello())

    def hello(self) -> Hello:
        """Return this replica's greeting to a master."""
        mine = self.replica_state
        return Hello(
            mine.me,
            mine.incarnation,
            mine.voted_epoch,
            mine.is_clean,
            mine.replicated_offset,
            mine.log_end,
            mine.epochs,
        )

    def not_opened(self, replica_id: int, now_ms: int, *, is_refused: bool) -> None:
        """Schedule another attempt, sooner if the machine runs and the process does not."""
        if replica_id != self._opening:
            return
        self._opening = None
        self.refusals = self.refusals + 1 if is_refused else 0
        pause_ms = REFUSED_AGAIN_MS if self.refusals == 1 else self._timing.reconnect_ms
        self._open_at_ms = now_ms + pause_ms

    def closed(self, link: int, now_ms: int) -> None:
        """Record that a connection broke."""
        if link == self.link:
            self.link, self.epoch, self._welcome = None, 0, None
            self._open_at_ms = now_ms

    def received(self, message: Message, now_ms: int) -> None:
        """Handle a message from the master."""
        self._link_heard_at_ms = now_ms
        if isinstance(message, Welcome):
            self.heard_at_ms = self.led_at_ms = now_ms
            self._handle_welcome(message)
        elif isinstance(message, Beat):
            self.heard_at_ms = self.led_at_ms = now_ms
            self._beat(message)
        elif isinstance(message, Refused):
            self.larger_epoch = max(self.larger_epoch, message.voted_epoch)
            self.leave()
            self._open_at_ms = now_ms + self._timing.reconnect_ms

    def takes(self, link: int, epoch: int) -> bool:
        """Return whether to append a frame of the log; if not, send its sender the reason."""
        if link != self.link:
            return False
        if epoch == self.epoch and epoch >= self._least_epoch:
            return True
        self._refuse()
        return False

    def voted_epoch_stored(self, epoch: int) -> None:
        """Truncate the log, now that the vote is on disk."""
        if self._welcome and self._welcome.epoch == epoch:
            self._cut(self._welcome)

    def awaits_cut(self, epochs: tuple[Epoch, ...]) -> bool:
        """Return whether *epochs* is the epoch table in the last Welcome."""
        return self._welcome is not None and self._welcome.epochs == epochs

    def log_is_cut(self) -> None:
        """Start to acknowledge: the log is now a prefix of the master's."""
        welcome = self._welcome
        if not welcome or self.link is None:
            return
        if welcome.seed:
            self.replica_state.replicated_offset = welcome.log_start
        self.epoch = welcome.epoch
        self.acknowledge()

    def acknowledge(self) -> None:
        """Send the master the offset that this replica holds."""
        mine = self.replica_state
        if not self.epoch or self.epoch < self._least_epoch:
            return
        if not mine.is_clean and not self.is_noting_clean and self._has_caught_up():
            self.is_noting_clean = True
            self.out.append(NoteClean())
        self._say(Ack(self.epoch, mine.acknowledgeable_offset, mine.is_clean))

    def noted_clean(self) -> None:
        """Acknowledge as a clean replica at once."""
        self.is_noting_clean = False
        self.acknowledge()

    @property
    def _least_epoch(self) -> int:
        return max(self.replica_state.voted_epoch, self.elected_epoch)

    def _has_caught_up(self) -> bool:
        return (
            self._welcome is not None
            and self.replica_state.acknowledgeable_offset >= self._welcome.whole_offset
        )

    def _handle_welcome(self, welcome: Welcome) -> None:
        if welcome.epoch < self._least_epoch:
            self._refuse()
            return
        if (
            not self.replica_state.epochs
            and self.replica_state.log_end > self.replica_state.log_start
        ):
            # The log ends where the master's begins only by chance: its content belongs to no
            # epoch.
            welcome = replace(welcome, seed=True)
        self._welcome = welcome
        if welcome.epoch > self.replica_state.voted_epoch:
            self.replica_state.voted_epoch = welcome.epoch
            self.out.append(StoreVotedEpoch(welcome.epoch))
        else:
            self._cut(welcome)

    def _cut(self, welcome: Welcome) -> None:
        mine = self.replica_state
        if self._has_log and welcome.common_end < min(mine.replicated_offset, mine.log_end):
            self._fence(welcome)
        elif welcome.seed:
            self.out.append(Cut(welcome.log_start, welcome.epochs, seed=True))
        else:
            self.out.append(Cut(min(welcome.common_end, mine.log_end), welcome.epochs))

    @property
    def _has_log(self) -> bool:
        """Whether this log has content that can be compared with the master's."""
        return (
            bool(self.replica_state.epochs)
            and self.replica_state.log_end > self.replica_state.log_start
        )

    def _fence(self, welcome: Welcome) -> None:
        mine = self.replica_state
        mine.is_fenced = True
        self.out.append(
            Alarm(
                f"this replica's log was confirmed up to {mine.replicated_offset:,}, but the log "
                f"of the master of epoch {welcome.epoch} differs from {welcome.common_end:,} on. "
                "Nothing was cut: compare the two, then seed one of them from the other with "
                f"'rockhopper ha reseed {mine.me.id}'"
            )
        )
        self.leave()

    def _beat(self, beat: Beat) -> None:
        if self.link is None or not self.epoch or not self.takes(self.link, beat.epoch):
            return
        mine = self.replica_state
        confirmed = min(beat.replicated_offset, mine.log_end)
        if confirmed > mine.replicated_offset:
            mine.replicated_offset = confirmed
            self.out.append(Confirm(confirmed))
        self.acknowledge()

    def _refuse(self) -> None:
        self._say(Refused(self._least_epoch, "this replica voted for a higher epoch"))
        self.leave()

    def _say(self, message: Message) -> None:
        assert self.link is not None
        self.out.append(SendMessage(self.link, message))
