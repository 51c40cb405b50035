"""Lives that are written by hand: what chance would bring about too seldom."""

from collections.abc import Callable

from tests.simulation import faults
from tests.simulation.replica import Node
from tests.simulation.rules import Violation
from tests.simulation.world import World

WAIT_MS = 15_000
STEP_MS = 50


def a_deposed_master_wakes(seed: int) -> World:
    """It stood still, another was elected and is killed, and the engine tells what was before.

    The other comes back while the old one still takes itself for the master: it must not follow.
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
    """From the engine, too: it asks to go on alone, which comes late or never, or another leads."""
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


SCENARIOS: tuple[Callable[[int], World], ...] = (
    a_deposed_master_wakes,
    a_master_is_cut_off_from_all,
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


def _wait_until(world: World, condition: Callable[[], bool]) -> None:
    end_ms = world.now_ms + WAIT_MS
    while not condition():
        if world.now_ms > end_ms:
            raise Violation(f"waited in vain: {faults.describe(world)}")
        world.run_until(world.now_ms + STEP_MS)


def _in_sync(world: World) -> frozenset[object]:
    return world.engine.state.in_sync if world.engine.state else frozenset()
