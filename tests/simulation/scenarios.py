"""Hand-written lives, for sequences that chance produces too rarely."""

from collections.abc import Callable
from dataclasses import replace

from rockhopper.broker.replication.election.messages import TakeOver
from tests.simulation import faults, operator
from tests.simulation.replica import Disk, Node
from tests.simulation.rules import Violation
from tests.simulation.world import World

WAIT_MS = 60_000
STEP_MS = 50


def a_deposed_master_wakes(seed: int) -> World:
    """A paused master wakes up after its successor was elected and killed, while the engine lies.

    The engine returns the old state. The successor returns while the old master still believes that
    it leads: the successor must not follow it.
    """
    world = World(seed, 3, 1 + seed % 2, sync_flush=False)
    old = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 3)
    world.run_until(world.now_ms + 1000)
    before = world.engine.read(world.now_ms)
    old.paused_until_ms = world.now_ms + 60_000
    world.engine.lease_until_ms = 0.0
    for node in world.nodes.values():
        world.network.cuts |= {(old.id, node.id), (node.id, old.id)}
    new = _wait_for_master(world, old.id)
    world.run_until(world.now_ms + 1500)
    world.engine.behind = before
    world.network.cuts.clear()
    other = next(node for node in world.nodes.values() if node not in (old, new))
    world.network.cuts |= {(other.id, each.id) for each in world.nodes.values()}
    world.stop(new.id)
    old.paused_until_ms = 0.0
    world.start(new.id)
    world.run_until(world.now_ms + 3000)
    world.engine.behind = None
    faults.recover(world)
    return world


def a_master_is_cut_off_from_all(seed: int) -> World:
    """A master is cut off from all replicas and from the engine.

    It asks to continue alone; the request arrives late or never, or another replica leads.
    """
    world = World(seed, 2 + seed % 2, 1, sync_flush=False)
    old = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == len(world.nodes))
    world.network.without_engine.add(old.id)
    for node in world.nodes.values():
        world.network.cuts |= {(old.id, node.id), (node.id, old.id)}
    _wait_until(world, lambda: len(_in_sync(world)) < len(world.nodes))
    world.run_until(world.now_ms + 3000)
    faults.recover(world)
    return world


def a_member_joins_and_its_master_is_not_told(seed: int) -> World:
    """The engine has added a replica that lacks recent messages; then it is elected."""
    world = World(seed, 3, 1, sync_flush=False)
    master = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 3)
    joining = next(node for node in world.nodes.values() if node is not master)
    world.stop(joining.id)
    _wait_until(world, lambda: len(_in_sync(world)) == 2)
    world.start(joining.id)
    _wait_until(world, lambda: _is_asking(master), step_ms=0.1)
    world.network.without_engine.add(master.id)
    world.network.cuts |= {(master.id, joining.id), (joining.id, master.id)}
    world.run_until(world.now_ms + 2500)
    for node in world.nodes.values():
        if node is not joining:
            world.stop(node.id)
    world.engine.lease_until_ms = 0.0
    world.run_until(world.now_ms + 3000)
    faults.recover(world)
    return world


def an_operator_gives_up_what_others_hold(seed: int) -> World:
    """An operator elects a replica that was left behind; another one returns with more messages.

    The returning replica keeps its messages and waits until a person decides. With every second
    seed the new master has meanwhile deleted everything that both logs had in common.
    """
    world = World(seed, 3, 1, sync_flush=False)
    old = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 3)
    left = next(node for node in world.nodes.values() if node is not old)
    world.stop(left.id)
    _wait_until(world, lambda: len(_in_sync(world)) == 2)
    world.run_until(world.now_ms + 1000)
    for number in world.nodes:
        world.stop(number)
    world.engine.lease_until_ms = 0.0
    world.start(left.id)

    def leads() -> bool:
        _elect(world, left)
        return left.machine is not None and left.machine.term is not None

    _wait_until(world, leads)
    world.run_until(world.now_ms + 500)
    if seed % 2:
        assert left.machine
        start = left.machine.replica_state.replicated_offset
        left.disk.log_start = left.machine.replica_state.log_start = left.checked = start
    world.start(old.id)
    _wait_until(world, lambda: old.machine is not None and old.machine.replica_state.is_fenced)
    faults.recover(world)
    return world


def an_operator_is_too_late(seed: int) -> World:
    """Another replica is elected between an operator's order and the request, and then stops."""
    world = World(seed, 3, 1, sync_flush=False)
    old = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 3)
    asked = next(node for node in world.nodes.values() if node is not old)
    world.network.without_engine.add(asked.id)
    for node in world.nodes.values():
        world.network.cuts |= {(asked.id, node.id), (node.id, asked.id)}
    _wait_until(world, lambda: len(_in_sync(world)) == 2)
    world.run_until(world.now_ms + 1500)
    view = world.engine.read(world.now_ms)
    world.call(
        asked,
        asked.incarnation,
        lambda m: m.saw(replace(view, leader=None), asked.now(world.now_ms)),
    )
    assert _elect(world, asked)
    world.network.without_engine.clear()
    world.call(asked, asked.incarnation, lambda m: m.saw(view, asked.now(world.now_ms)))
    world.run_until(world.now_ms + 1500)
    for node in world.nodes.values():
        if node is not asked:
            world.stop(node.id)
    world.run_until(world.now_ms + 3 * world.timing.lease_ms)
    faults.recover(world)
    return world


def a_word_to_take_over_comes_to_the_wrong_one(seed: int) -> World:
    """A replica that has only begun to copy the log is ordered to take over."""
    world = World(seed, 3, 1, sync_flush=False)
    old = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 3)
    new = next(node for node in world.nodes.values() if node is not old)
    world.stop(new.id)
    new.disk = Disk("another disk")
    world.start(new.id)
    world.network.slowness = 20.0

    def told() -> bool:
        machine = new.machine
        if not machine or not machine.following.epoch:
            return False
        link, epoch = machine.following.link, machine.following.epoch
        assert link is not None
        world.call(
            new, new.incarnation, lambda m: m.received(link, TakeOver(epoch), new.now(world.now_ms))
        )
        return True

    _wait_until(world, told, step_ms=1)
    world.run_until(world.now_ms + 1500)
    faults.recover(world)
    return world


def an_engine_is_put_back_from_a_backup(seed: int) -> World:
    """The engine is restored from a backup, and every process is restarted.

    Only the processes' disks have what they saw since the backup. A replica that has left the
    in-sync set since then is in the backup's set, and is the fastest. With every second seed,
    another master was also elected meanwhile.
    """
    world = World(seed, 3, 1 + seed // 2 % 2, sync_flush=False)
    old = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 3)
    backup, version = world.engine.state, world.engine.version
    left = next(node for node in world.nodes.values() if node is not old)
    world.stop(left.id)
    _wait_until(world, lambda: len(_in_sync(world)) == 2)
    if seed % 2:
        world.call(old, old.incarnation, lambda m: m.step_down("asked to", old.now(world.now_ms)))
        _wait_until(world, lambda: world.engine.state.epoch > backup.epoch)  # type: ignore[union-attr]
        _wait_for_master(world, 0)
    world.run_until(world.now_ms + 1000)
    for number in world.nodes:
        world.stop(number)
    world.engine.state, world.engine.version, world.engine.leader = backup, version, None
    world.engine.members.clear()
    for number, node in world.nodes.items():
        world.start(number)
        if node is not left:
            node.paused_until_ms = world.now_ms + 3000
    world.run_until(world.now_ms + 3 * world.timing.lease_ms)
    faults.recover(world)
    if world.rules.lost:
        raise Violation(f"an old state has cost {world.rules.lost} messages")
    return world


def who_lost_its_tail_is_left_alone(seed: int) -> World:
    """A replica that lost its tail returns before it has left the in-sync set.

    Its master stops before it has sent much.
    """
    world = World(seed, 2, 1, sync_flush=False)
    master = _wait_for_master(world, 0)
    _wait_until(world, lambda: len(_in_sync(world)) == 2)
    world.run_until(world.now_ms + 1000)
    other = next(node for node in world.nodes.values() if node is not master)
    other.disk.synced = max(0, len(other.disk.log) - 40)
    world.cut_power(other.id)
    world.start(other.id)
    view = world.engine.read(world.now_ms)
    world.call(other, other.incarnation, lambda m: m.saw(view, other.now(world.now_ms)))
    world.network.slowness = 20.0
    _wait_until(world, lambda: other.disk.is_clean, step_ms=1)
    world.stop(master.id)
    world.run_until(world.now_ms + 3 * world.timing.lease_ms)
    faults.recover(world)
    return world


SCENARIOS: tuple[Callable[[int], World], ...] = (
    a_deposed_master_wakes,
    a_master_is_cut_off_from_all,
    a_member_joins_and_its_master_is_not_told,
    an_operator_gives_up_what_others_hold,
    an_operator_is_too_late,
    a_word_to_take_over_comes_to_the_wrong_one,
    an_engine_is_put_back_from_a_backup,
    who_lost_its_tail_is_left_alone,
)


def _wait_for_master(world: World, other_than: int) -> Node:
    found: list[Node] = []

    def is_there() -> bool:
        found[:] = [
            node
            for node in world.nodes.values()
            if node.machine and node.machine.term and node.id != other_than
        ]
        return bool(found)

    _wait_until(world, is_there)
    return found[0]


def _wait_until(world: World, condition: Callable[[], bool], *, step_ms: float = STEP_MS) -> None:
    end_ms = world.now_ms + WAIT_MS
    while not condition():
        if world.now_ms > end_ms:
            raise Violation(f"waited in vain: {faults.describe(world)}")
        world.run_until(world.now_ms + step_ms)


def _elect(world: World, node: Node) -> bool:
    operator.ask_to_lead(world, node)
    return node.may_lose


def _is_asking(master: Node) -> bool:
    term = master.machine.term if master.machine else None
    return term is not None and term.is_asking


def _in_sync(world: World) -> frozenset[object]:
    return world.engine.state.in_sync if world.engine.state else frozenset()
