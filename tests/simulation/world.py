"""Time, and all events in it, drawn from the seed."""

import heapq
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.campaigning import BY_OPERATOR, POWER_CUT
from rockhopper.broker.replication.election.machine import Machine, ReplicaRole
from rockhopper.broker.replication.election.messages import Beat
from rockhopper.broker.replication.election.replica_set import (
    NOTHING_SEEN,
    Leader,
    Replica,
    SwapOutcome,
)
from rockhopper.broker.replication.election.timing import Timing
from tests.simulation.engine import FakeEngine
from tests.simulation.network import CONNECTED_MS, Link, Network
from tests.simulation.replica import Disk, Entry, Node
from tests.simulation.rules import Rules, Violation, check_epochs

TICK_MS = 100
SEND_MS = 15
SYNC_MS = 300
FRAME_MAX = 20
GIVE_UP_MS = 1000


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of log."""

    epoch: int
    offset: int
    entries: tuple[Entry, ...]
    confirmed: int


class World:
    """A replica set and its surroundings."""

    def __init__(
        self,
        seed: int,
        replicas: int,
        min_in_sync: int,
        *,
        sync_flush: bool,
        goes_on_unclean: bool = False,
    ) -> None:
        self.random = Random(seed)
        # Its watches lose changes, unlike those of real engines.
        self.timing = Timing(first_start_ms=1000, read_interval_ms=1000)
        self.min_in_sync = min_in_sync
        self.sync_flush = sync_flush
        self.replicas_after_power_cut = replicas if goes_on_unclean else 0
        self.now_ms = 0.0
        self.rules = Rules()
        self.done: Counter[str] = Counter()
        """The orders that an operator carried out, and how often."""
        self.network = Network(self.random)
        self.engine = FakeEngine(self.timing.lease_ms, random=self.random)
        self.links: dict[int, Link] = {}
        self.nodes: dict[int, Node] = {}
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._ids = 0
        self._do: dict[type, Callable[[Node, Machine, Any], None]] = {
            actions.Open: self._open,
            actions.Close: self._close,
            actions.SendMessage: self._send,
            actions.StreamLog: self._stream,
            actions.StoreVotedEpoch: self._store_voted_epoch,
            actions.NoteSeenState: self._note_seen_state,
            actions.EnterEpoch: self._enter_epoch,
            actions.Cut: self._cut,
            actions.NoteClean: self._note_clean,
            actions.GiveUp: self._give_up,
            actions.Campaign: self._campaign,
            actions.Alter: self._alter,
            actions.Renew: self._renew,
            actions.Release: self._release,
            actions.Read: self._read,
            actions.Lead: self._lead,
            actions.Resign: self._resign,
            actions.Confirm: self._confirm,
            actions.Alarm: self._alarm,
        }
        for number in range(1, replicas + 1):
            rate, offset_ms = self.random.uniform(0.95, 1.05), self.random.uniform(0, 1e6)
            self.nodes[number] = Node(number, Disk(f"s{number}"), rate, offset_ms)
            self.start(number)
        self.after(SEND_MS, self._send_some)
        self.after(SYNC_MS, self._sync_some)
        self.after(1, self._read_some)

    # Time.

    def after(self, delay_ms: float, what: Callable[..., None], *arguments: Any) -> None:
        """Schedule an event."""
        self._count += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._count, what, arguments))

    def run_until(self, end_ms: float) -> None:
        """Run all events that are due by then."""
        events = self._events
        while events and events[0][0] <= end_ms:
            self.now_ms, _, what, arguments = heapq.heappop(events)
            what(*arguments)
        self.now_ms = end_ms

    def call(self, node: Node, incarnation: str, what: Callable[[Machine], None]) -> None:
        """Let a process handle an event if it still runs; later if it is paused."""
        machine = node.machine
        if machine is None or node.incarnation != incarnation:
            return
        if node.paused_until_ms > self.now_ms:
            self.after(node.paused_until_ms - self.now_ms, self.call, node, incarnation, what)
            return
        what(machine)
        self._perform(node, machine)

    def _perform(self, node: Node, machine: Machine) -> None:
        while machine.actions:
            todo, machine.actions[:] = list(machine.actions), []
            for action in todo:
                self._do[type(action)](node, machine, action)
        if machine.role not in (ReplicaRole.CANDIDATE, ReplicaRole.LEADING):
            node.may_lose = False

    # Processes.

    def start(self, number: int) -> None:
        """Start a replica's process, as soon as it can reach the engine."""
        node = self.nodes[number]
        if node.machine is not None:
            return
        if number in self.network.without_engine:
            self.after(500, self.start, number)
            return
        node.disk.starts += 1
        if not self.engine.count_start(Replica(number, node.disk.store), node.disk.starts):
            node.disk.mark_unclean()
        node.paused_until_ms = 0.0
        node.start(
            self.now_ms,
            self.timing,
            self.min_in_sync,
            self.random,
            replicas_after_power_cut=self.replicas_after_power_cut,
        )
        self._tick(node, node.incarnation)
        self._announce(node, node.incarnation)

    def stop(self, number: int) -> None:
        """Kill a process: its writes are in the page cache, and its connections break."""
        node = self.nodes[number]
        node.machine = None
        node.incarnation = ""
        node.leads_epoch = 0
        node.may_lose = node.is_given_up = node.takes_no_sends = False
        for link in [each for each in self.links.values() if number in each.ends]:
            self._break(link)

    def cut_power(self, number: int) -> None:
        """Kill a process and discard its machine's memory."""
        self.stop(number)
        self.nodes[number].disk.lose_power(self.random, sync_flush=self.sync_flush)

    def _tick(self, node: Node, incarnation: str) -> None:
        if node.incarnation != incarnation:
            return
        self.call(node, incarnation, lambda machine: machine.tick(node.now(self.now_ms)))
        self.after(TICK_MS, self._tick, node, incarnation)

    def _announce(self, node: Node, incarnation: str) -> None:
        if node.incarnation != incarnation:
            return
        if node.id not in self.network.without_engine:
            member = node.announcement()
            if node.machine and node.paused_until_ms <= self.now_ms:
                misses = node.machine.misses_master(node.now(self.now_ms))
                member = replace(member, misses_master=misses)
            self.engine.announce(member, self.now_ms)
        self.after(1000, self._announce, node, incarnation)

    def needs_a_person(self) -> bool:
        """Return whether no electable replica certainly has everything that was acknowledged."""
        state = self.engine.state
        if state is None:
            return False
        if self.engine_is_behind():
            return True
        nodes = {(node.id, node.disk.store): node for node in self.nodes.values()}
        members = [nodes.get((each.id, each.store)) for each in state.in_sync]
        return not any(node and node.disk.is_clean for node in members)

    def engine_is_behind(self) -> bool:
        """Return whether a running replica reports that the engine is behind."""
        return any(node.machine and node.machine.is_engine_behind for node in self.nodes.values())

    # Producers, consumers, and the disk's syncs.

    def _send_some(self) -> None:
        for node in self.nodes.values():
            machine = node.machine
            if machine is None or node.paused_until_ms > self.now_ms or node.takes_no_sends:
                continue
            if machine.takes_sends(node.now(self.now_ms)):
                self._ids += 1
                node.disk.log.append(Entry(self._ids, node.next_queue_offset))
                node.next_queue_offset += 1
                self._wrote(node, machine)
        self.after(self.random.expovariate(1 / SEND_MS), self._send_some)

    def _read_some(self) -> None:
        for node in self.nodes.values():
            term = node.machine.term if node.machine else None
            if term and term.is_settled:
                self.rules.read(term.epoch, term.replicated_offset)
        self.after(50, self._read_some)

    def _sync_some(self) -> None:
        for node in self.nodes.values():
            node.disk.synced = len(node.disk.log)
            if node.machine:
                node.disk.confirmed = node.machine.replica_state.replicated_offset
            if self.sync_flush and node.machine and node.paused_until_ms <= self.now_ms:
                self._wrote(node, node.machine)
        self.after(SYNC_MS * self.random.random(), self._sync_some)

    def _wrote(self, node: Node, machine: Machine) -> None:
        end = len(node.disk.log)
        machine.wrote(end, node.disk.synced if self.sync_flush else end)
        self._perform(node, machine)
        for link in list(self.links.values()):
            if link.stream_offset is not None and link.ends[1] == node.id:
                self._pump(node, machine, link)

    # The network: a link's first end connects to its second.

    def _open(self, node: Node, machine: Machine, action: actions.Open) -> None:
        self.after(
            self.network.delay_ms() + CONNECTED_MS,
            self._connect,
            node,
            node.incarnation,
            action.replica_id,
        )

    def _connect(self, node: Node, incarnation: str, target: int) -> None:
        other = self.nodes.get(target)
        both = self.network.passes(node.id, target) and self.network.passes(target, node.id)
        if other is None or not both:
            self.after(300, self._not_opened, node, incarnation, target, False)
        elif other.machine is None:
            self._not_opened(node, incarnation, target, True)
        else:
            self._count += 1
            link = Link(self._count, (node.id, target), (incarnation, other.incarnation))
            self.links[link.number] = link
            self.call(
                node,
                incarnation,
                lambda m: m.following.opened(link.number, target, node.now(self.now_ms)),
            )

    def _not_opened(self, node: Node, incarnation: str, target: int, is_refused: bool) -> None:
        self.call(
            node,
            incarnation,
            lambda m: m.following.not_opened(target, node.now(self.now_ms), is_refused=is_refused),
        )

    def _close(self, node: Node, machine: Machine, action: actions.Close) -> None:
        if link := self.links.get(action.link):
            self._break(link, by=node.id)

    def _break(self, link: Link, by: int = 0) -> None:
        link.is_open = False
        self.links.pop(link.number, None)
        for number, incarnation in zip(link.ends, link.incarnations, strict=True):
            if number != by and (not by or self.network.passes(by, number)):
                self.after(
                    self.network.delay_ms(), self._closed, self.nodes[number], incarnation, link
                )

    def _closed(self, node: Node, incarnation: str, link: Link) -> None:
        self.call(node, incarnation, lambda m: m.closed(link.number, node.now(self.now_ms)))

    def _send(self, node: Node, machine: Machine, action: actions.SendMessage) -> None:
        if link := self.links.get(action.link):
            self._transmit(link, node.id, action.message)

    def _transmit(self, link: Link, sender: int, message: object) -> None:
        receiver = link.other(sender)
        link.held.setdefault(receiver, deque()).append(message)
        due_ms = max(self.now_ms + self.network.delay_ms(), link.due_ms.get(receiver, 0.0))
        link.due_ms[receiver] = due_ms
        self.after(due_ms - self.now_ms, self._arrive, link, sender, receiver)

    def _arrive(self, link: Link, sender: int, receiver: int) -> None:
        if not link.is_open or not link.held[receiver]:
            return
        if not self.network.passes(sender, receiver):
            self.after(50, self._arrive, link, sender, receiver)
            return
        node = self.nodes[receiver]
        incarnation = link.incarnations[link.ends.index(receiver)]
        if node.incarnation != incarnation:
            return
        message = link.held[receiver].popleft()
        self.call(node, incarnation, lambda m: self._receive(node, m, link, message))

    def _receive(self, node: Node, machine: Machine, link: Link, message: Any) -> None:
        now_ms = node.now(self.now_ms)
        if not link.is_open:
            return
        if not isinstance(message, Frame):
            machine.received(link.number, message, now_ms)
            return
        log = node.disk.log
        if not machine.takes(link.number, message.epoch):
            return
        if message.offset != len(log):  # two overlapping pauses can cause this
            self._break(link, by=node.id)
            machine.closed(link.number, now_ms)
        else:
            log.extend(message.entries)
            self._wrote(node, machine)
            machine.received(link.number, Beat(message.epoch, message.confirmed), now_ms)

    def _stream(self, node: Node, machine: Machine, action: actions.StreamLog) -> None:
        if link := self.links.get(action.link):
            link.stream_offset, link.stream_epoch = action.start_offset, action.epoch
            self._pump(node, machine, link)

    def _pump(self, node: Node, machine: Machine, link: Link) -> None:
        log, term = node.disk.log, machine.term
        if not term or term.epoch != link.stream_epoch:
            return
        assert link.stream_offset is not None
        while link.stream_offset < len(log):
            entries = tuple(log[link.stream_offset : link.stream_offset + FRAME_MAX])
            frame = Frame(term.epoch, link.stream_offset, entries, term.replicated_offset)
            link.stream_offset += len(entries)
            self._transmit(link, node.id, frame)

    # The disk.

    def _on_disk(
        self, node: Node, do: Callable[[Disk], None], then: Callable[[Machine], None]
    ) -> None:
        node.disk_due_ms = max(node.disk_due_ms, self.now_ms + self.random.expovariate(1 / 3))
        self.after(node.disk_due_ms - self.now_ms, self._synced, node, node.incarnation, do, then)

    def _synced(
        self,
        node: Node,
        incarnation: str,
        do: Callable[[Disk], None],
        then: Callable[[Machine], None],
    ) -> None:
        if node.incarnation == incarnation or (not node.incarnation and self.random.random() < 0.3):
            do(node.disk)
        self.call(node, incarnation, then)

    def _store_voted_epoch(
        self, node: Node, machine: Machine, action: actions.StoreVotedEpoch
    ) -> None:
        def do(disk: Disk) -> None:
            disk.voted_epoch = max(disk.voted_epoch, action.epoch)

        self._on_disk(node, do, lambda m: m.voted_epoch_stored(action.epoch, node.now(self.now_ms)))

    def _note_seen_state(self, node: Node, machine: Machine, action: actions.NoteSeenState) -> None:
        def do(disk: Disk) -> None:
            disk.seen_state = action.seen_state

        self._on_disk(node, do, lambda m: None)

    def _enter_epoch(self, node: Node, machine: Machine, action: actions.EnterEpoch) -> None:
        check_epochs(action.epochs)

        def do(disk: Disk) -> None:
            disk.epochs = action.epochs

        self._on_disk(node, do, lambda m: m.entered(node.now(self.now_ms)))

    def _cut(self, node: Node, machine: Machine, action: actions.Cut) -> None:
        check_epochs(action.epochs)
        confirmed = min(machine.replica_state.replicated_offset, len(node.disk.log))
        if action.seed:
            truth = self.rules.truth_of(action.epochs[-1].number)
            is_given_up = node.is_given_up or not machine.replica_state.epochs
            if not is_given_up and truth.differs_from(node, 0, confirmed):
                raise Violation(f"replica {node.id} replaces a log that was confirmed")
        elif action.end_offset < confirmed:
            raise Violation(f"replica {node.id} cuts what was confirmed")

        def do(disk: Disk) -> None:
            disk.cut(action.end_offset, action.epochs, seed=action.seed)

        def then(machine: Machine) -> None:
            if action.seed:
                node.is_given_up = False
            replica_state, disk = machine.replica_state, node.disk
            replica_state.epochs, replica_state.is_clean = disk.epochs, disk.is_clean
            replica_state.log_start = disk.log_start
            node.checked = min(node.checked, len(disk.log))
            machine.log_is_cut(len(disk.log))

        self._on_disk(node, do, then)

    def _give_up(self, node: Node, machine: Machine, action: actions.GiveUp) -> None:
        def do(disk: Disk) -> None:
            disk.mark_unclean()
            disk.epochs, disk.seen_state = (), NOTHING_SEEN

        self._on_disk(node, do, lambda m: None)

    def _note_clean(self, node: Node, machine: Machine, action: actions.NoteClean) -> None:
        def do(disk: Disk) -> None:
            disk.is_clean = True

        self._on_disk(node, do, lambda m: m.noted_clean())

    # The engine.

    def _ask_engine(
        self, node: Node, do: Callable[[], Any], then: Callable[[Machine, Any], None], unknown: Any
    ) -> None:
        """Send a request; give up if there is no answer after a second.

        The request may still take effect later.
        """
        incarnation = node.incarnation
        answered: list[bool] = []

        def finish(result: Any) -> None:
            if not answered:
                answered.append(True)
                self.call(node, incarnation, lambda m: then(m, result))

        def arrive() -> None:
            result = do()
            if self.random.random() > self._loss(node):
                self.after(self.network.delay_ms(), finish, result)

        delay_ms = self.network.delay_ms()
        if self.random.random() < self._loss(node):
            if self.random.random() < 0.5:
                self.after(self.random.uniform(0, 4000), arrive)
        else:
            self.after(delay_ms, arrive)
        self.after(GIVE_UP_MS, finish, unknown)

    def _loss(self, node: Node) -> float:
        if node.id in self.network.without_engine:
            return 1.0
        return 0.15 if self.engine.is_lying else 0.01

    def _campaign(self, node: Node, machine: Machine, action: actions.Campaign) -> None:
        me = Leader(node.id, node.incarnation, action.state.epoch)

        why = action.state.history[-1].why
        is_forced = why in (BY_OPERATOR, POWER_CUT)
        if why == BY_OPERATOR and not node.may_lose:
            raise Violation(f"replica {node.id} gives up what nobody has told it to")

        def do() -> tuple[SwapOutcome, Any]:
            held = self.engine.read(self.now_ms).leader
            is_lossy = self.needs_a_person()
            outcome = self.engine.campaign(action, me, self.now_ms)
            if is_forced and outcome is SwapOutcome.DONE:
                if held:
                    raise Violation(f"replica {node.id} displaces {held}, and may lack messages")
                if why == POWER_CUT and not is_lossy:
                    raise Violation(f"replica {node.id} goes on unclean, and another is clean")
                self.done["elect" if why == BY_OPERATOR else "go on unclean"] += 1
                self.rules.gave_up(action.state.epoch, by_operator=why == BY_OPERATOR)
            return outcome, self.engine.read(self.now_ms)

        def then(machine: Machine, result: tuple[SwapOutcome, Any]) -> None:
            machine.campaigned(*result, node.now(self.now_ms))

        self._ask_engine(node, do, then, (SwapOutcome.UNKNOWN, None))

    def _alter(self, node: Node, machine: Machine, action: actions.Alter) -> None:
        if len(action.state.in_sync) < min(self.min_in_sync, len(self.engine.state.in_sync)):  # type: ignore[union-attr]
            raise Violation(f"the in-sync set falls below its floor: {action.state}")

        def do() -> tuple[SwapOutcome, int]:
            return self.engine.alter(action), self.engine.version

        def then(machine: Machine, result: tuple[SwapOutcome, int]) -> None:
            machine.altered(*result, node.now(self.now_ms))

        self._ask_engine(node, do, then, (SwapOutcome.UNKNOWN, 0))

    def _renew(self, node: Node, machine: Machine, action: actions.Renew) -> None:
        asked_at_ms = node.now(self.now_ms)
        term = machine.term
        assert term
        me = Leader(node.id, node.incarnation, term.epoch)

        def then(machine: Machine, outcome: SwapOutcome) -> None:
            machine.renewed(outcome, asked_at_ms)

        self._ask_engine(
            node,
            lambda: self.engine.renew(me, action.version, self.now_ms),
            then,
            SwapOutcome.UNKNOWN,
        )

    def _release(self, node: Node, machine: Machine, action: actions.Release) -> None:
        me = Leader(node.id, node.incarnation, action.epoch)
        self._ask_engine(node, lambda: self.engine.resign(me), lambda _machine, _told: None, None)

    def _read(self, node: Node, machine: Machine, action: actions.Read) -> None:
        def then(machine: Machine, view: Any) -> None:
            if view is not None:
                machine.saw(view, node.now(self.now_ms))

        self._ask_engine(node, lambda: self.engine.answer(self.now_ms), then, None)

    # Roles.

    def _lead(self, node: Node, machine: Machine, action: actions.Lead) -> None:
        self.rules.elected(node, action.epoch)
        node.leads_epoch = action.epoch
        node.checked = node.disk.log_start
        log = node.disk.log
        node.next_queue_offset = log[-1].queue_offset + 1 if log else 0

    def _resign(self, node: Node, machine: Machine, action: actions.Resign) -> None:
        node.leads_epoch = 0
        for link in self.links.values():
            if link.ends[1] == node.id:
                link.stream_offset = None

    def _confirm(self, node: Node, machine: Machine, action: actions.Confirm) -> None:
        # The machine may have resigned by then: that is a separate action, after this one.
        epoch = node.leads_epoch or machine.following.epoch
        self.rules.confirmed(node, epoch, action.offset, is_master=node.leads_epoch > 0)

    def _alarm(self, node: Node, machine: Machine, action: actions.Alarm) -> None:
        self.rules.fenced(node, machine.replica_state.replicated_offset, action.text)
