"""The life of a seed: which faults occur when, and a recovery some time after the last."""

from collections.abc import Callable
from random import Random

from rockhopper.broker.replication.election.replica_set import Replica
from tests.simulation import operator
from tests.simulation.replica import Disk
from tests.simulation.rules import Violation
from tests.simulation.world import World

FAULTS_MS = 12_000
HEALED_MS = 60_000
STEP_MS = 1_000
ALONE_MS = 30_000


def run(seed: int) -> World:
    """Run a seed. Raise Violation if a rule is broken or the set does not recover."""
    random = Random(seed * 7919)
    replicas = random.choice((2, 3, 3, 3, 4))
    min_in_sync = random.randint(1, min(2, replicas))
    world = World(
        seed,
        replicas,
        min_in_sync,
        sync_flush=random.random() < 0.3,
        goes_on_unclean=random.random() < 0.3,
    )
    kinds = random.sample(FAULTS, random.randint(1, 4))
    if seed % 2:
        kinds += random.sample(operator.ORDERS, random.randint(1, 2))
    for _ in range(random.randint(1, 12)):
        fault = random.choice(kinds)
        world.after(random.uniform(1500, FAULTS_MS), fault, world, random)
    world.run_until(FAULTS_MS)
    recover(world)
    return world


def recover(world: World) -> None:
    """End every fault, and wait until the set has recovered."""
    heal(world)
    end_ms = world.now_ms + HEALED_MS
    help_ms = world.now_ms + (ALONE_MS if world.replicas_after_power_cut else 0)
    while not is_well(world):
        if world.now_ms > end_ms:
            raise Violation(f"not well again: {describe(world)}")
        if world.now_ms >= help_ms:
            operator.help_out(world)
        world.run_until(world.now_ms + STEP_MS)


def heal(world: World) -> None:
    """End every fault."""
    world.network.cuts.clear()
    world.network.without_engine.clear()
    world.network.slowness = 1.0
    world.engine.is_lying = False
    for number, node in world.nodes.items():
        node.paused_until_ms = 0.0
        world.start(number)


def is_well(world: World) -> bool:
    """Return whether one master leads, all replicas are in sync, and all confirmed data is equal.

    A set whose members have all lost their memory rightly waits for an operator, who helps. Where
    the set may recover by itself, the operator first gives it time to do so.
    """
    state = world.engine.state
    leading = [node for node in world.nodes.values() if node.machine and node.machine.term]
    if state is None or len(leading) != 1 or len(state.in_sync) != len(world.nodes):
        return False
    master = leading[0]
    assert master.machine
    return master.machine.takes_sends(master.now(world.now_ms))


def describe(world: World) -> str:
    """Return each replica's state, for a person to read."""
    roles = {
        node.id: (
            node.machine.role.value if node.machine else "dead",
            node.disk.is_clean,
            len(node.disk.log),
            node.disk.voted_epoch,
        )
        for node in world.nodes.values()
    }
    return f"{roles}, {world.engine.state}, leader {world.engine.read(world.now_ms).leader}"


def kill(world: World, random: Random) -> None:
    number = random.choice(list(world.nodes))
    world.stop(number)
    world.after(random.expovariate(1 / 1500), world.start, number)


def cut_power(world: World, random: Random) -> None:
    number = random.choice(list(world.nodes))
    world.cut_power(number)
    world.after(random.expovariate(1 / 1500), world.start, number)


def cut_power_of_all(world: World, random: Random) -> None:
    for number in world.nodes:
        world.cut_power(number)
        world.after(random.expovariate(1 / 1500), world.start, number)


def pause(world: World, random: Random) -> None:
    node = random.choice(list(world.nodes.values()))
    node.paused_until_ms = world.now_ms + random.expovariate(1 / 2500)


def isolate(world: World, random: Random) -> None:
    number = random.choice(list(world.nodes))
    others = [each for each in world.nodes if each != number]
    pairs = {(number, each) for each in others} | {(each, number) for each in others}
    _cut(world, random, pairs)
    if random.random() < 0.5:
        _without_engine(world, random, number)


def cut_one_way(world: World, random: Random) -> None:
    _cut(world, random, {tuple(random.sample(list(world.nodes), 2))})  # type: ignore[arg-type]


def cut_some(world: World, random: Random) -> None:
    pairs = {(a, b) for a in world.nodes for b in world.nodes if a != b and random.random() < 0.4}
    _cut(world, random, pairs)


def engine_away(world: World, random: Random) -> None:
    chosen = [each for each in world.nodes if random.random() < 0.6]
    for number in chosen:
        _without_engine(world, random, number)


def engine_lies(world: World, random: Random) -> None:
    world.engine.is_lying = True
    world.after(random.expovariate(1 / 5000), setattr, world.engine, "is_lying", False)


def lease_ends(world: World, random: Random) -> None:
    world.engine.lease_until_ms = 0.0


def slow(world: World, random: Random) -> None:
    world.network.slowness = random.choice((5, 20, 60))
    world.after(random.expovariate(1 / 3000), setattr, world.network, "slowness", 1.0)


def exchange_disk(world: World, random: Random) -> None:
    number = random.choice(list(world.nodes))
    world.stop(number)
    world.nodes[number].disk = Disk(f"s{number}-{random.randrange(1 << 30)}")
    world.after(random.expovariate(1 / 1500), world.start, number)


def restore(world: World, random: Random) -> None:
    """Restore a backup. A disk cannot show that a backup is from its last start."""
    node = random.choice(list(world.nodes.values()))
    if node.backup is None:
        node.backup = node.disk.copy()
        return
    world.stop(node.id)
    told = world.engine.starts.get(Replica(node.id, node.backup.store), 0)
    if told > node.backup.starts:
        node.disk = node.backup.copy()
    world.after(random.expovariate(1 / 1500), world.start, node.id)


def begin_anew(world: World, random: Random) -> None:
    number = random.choice(list(world.nodes))
    world.stop(number)
    world.nodes[number].disk.begin_anew()
    world.after(random.expovariate(1 / 1500), world.start, number)


def expire(world: World, random: Random) -> None:
    """Let retention delete the start of a log, up to the replicated offset."""
    node = random.choice(list(world.nodes.values()))
    if node.machine and node.machine.role.value in ("leading", "following"):
        confirmed = min(node.machine.replica_state.replicated_offset, len(node.disk.log))
        if confirmed > node.disk.log_start:
            start = random.randint(node.disk.log_start, confirmed)
            node.disk.log_start = node.machine.replica_state.log_start = start
            node.checked = max(node.checked, start)


FAULTS: tuple[Callable[[World, Random], None], ...] = (
    kill,
    kill,
    cut_power,
    cut_power,
    cut_power_of_all,
    pause,
    isolate,
    isolate,
    cut_one_way,
    cut_some,
    engine_away,
    engine_lies,
    lease_ends,
    slow,
    exchange_disk,
    restore,
    begin_anew,
    expire,
)


def _cut(world: World, random: Random, pairs: set[tuple[int, int]]) -> None:
    world.network.cuts |= pairs
    world.after(random.expovariate(1 / 3000), world.network.cuts.difference_update, pairs)


def _without_engine(world: World, random: Random, number: int) -> None:
    world.network.without_engine.add(number)
    world.after(random.expovariate(1 / 4000), world.network.without_engine.discard, number)
