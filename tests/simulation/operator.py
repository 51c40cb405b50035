"""An operator who orders switches, elections that may lose messages, and seeding at any moment.

They also order them of the wrong replica, and twice. A refusal with a sentence is no fault;
``World.done`` counts the orders that were carried out.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from rockhopper.broker.replication.election.machine import Machine
from rockhopper.broker.replication.election.operating import forget
from tests.simulation.replica import Node
from tests.simulation.rules import Violation
from tests.simulation.world import World

SWITCH_MS = 2000
ASK_AGAIN_MS = 250


def switch(world: World, random: Random) -> None:
    """Switch as `ha switch` does: stop sends, confirm everything, and ask until it is done."""
    node = _any(world, random)
    target = random.choice((*world.nodes, *world.nodes, 9))

    def begin(machine: Machine) -> None:
        if machine.term:
            node.takes_no_sends = True
            end_ms = node.now(world.now_ms) + SWITCH_MS
            _hand_over(world, node, machine, target, machine.term.epoch, end_ms)

    _twice(world, random, lambda: world.call(node, node.incarnation, begin))


def _hand_over(
    world: World, node: Node, machine: Machine, target: int, epoch: int, end_ms: int
) -> None:
    if not machine.term or machine.term.epoch != epoch:
        world.done["switch"] += 1
    elif node.now(world.now_ms) >= end_ms:
        machine.step_down("handing over failed", node.now(world.now_ms))
    else:
        if machine.term.replicated_offset == len(node.disk.log):
            _try(lambda: machine.hand_over(target))
        world.after(
            ASK_AGAIN_MS,
            world.call,
            node,
            node.incarnation,
            lambda m: _hand_over(world, node, m, target, epoch, end_ms),
        )
        return
    node.takes_no_sends = False


def hand_over_in_the_midst(world: World, random: Random) -> None:
    """Order one or two replicas to take over while many requests are in flight."""
    node = _any(world, random)
    for target in random.choices(list(world.nodes), k=random.randint(1, 2)):
        world.call(node, node.incarnation, partial(_hand_over_once, target))


def _hand_over_once(target: int, machine: Machine) -> None:
    _try(lambda: machine.hand_over(target))


def drain(world: World, random: Random) -> None:
    """Stop a process: it hands over, and is gone before it sees the result."""
    node = _any(world, random)

    def leave(machine: Machine) -> None:
        target = machine.best_successor()
        if target is not None:
            machine.hand_over(target)

    world.call(node, node.incarnation, leave)
    world.after(random.expovariate(1 / 20), world.stop, node.id)
    world.after(1000 + random.expovariate(1 / 1500), world.start, node.id)


def elect_unclean(world: World, random: Random) -> None:
    """Order an unclean election at any replica, whether or not there is a master."""
    node = _any(world, random)
    _twice(world, random, lambda: ask_to_lead(world, node))


def ask_to_lead(world: World, node: Node) -> None:
    """Make a replica lead that may lack confirmed messages."""

    def ask(machine: Machine) -> None:
        if _try(lambda: machine.lead_by_operator(node.now(world.now_ms))):
            node.may_lose = True

    world.call(node, node.incarnation, ask)


def reseed(world: World, random: Random) -> None:
    """Order seeding at any replica."""
    node = _any(world, random)
    _twice(world, random, lambda: ask_to_be_seeded(world, node))


def ask_to_be_seeded(world: World, node: Node) -> None:
    """Replace a replica's log with its master's."""

    def ask(machine: Machine) -> None:
        if _try(machine.reseed):
            world.done["reseed"] += 1
            node.is_given_up = True

    world.call(node, node.incarnation, ask)


def forget_one(world: World, random: Random) -> None:
    """Check that no replica of the in-sync set may be forgotten."""
    node, replica_id = _any(world, random), random.choice((*world.nodes, 9))
    view = node.machine.view if node.machine else None

    def ask() -> None:
        forget(view, replica_id)
        state = view.state if view else None
        if state is None or any(each.id == replica_id for each in state.in_sync):
            raise Violation(f"replica {replica_id} may be scrapped, with {view}")

    if _try(ask):
        world.done["forget"] += 1


ORDERS: tuple[Callable[[World, Random], None], ...] = (
    switch,
    switch,
    hand_over_in_the_midst,
    drain,
    elect_unclean,
    elect_unclean,
    reseed,
    forget_one,
)


def help_out(world: World) -> None:
    """Do what a set's alarms ask of an operator."""
    for node in world.nodes.values():
        if node.machine and node.machine.replica_state.is_fenced:
            ask_to_be_seeded(world, node)
    if world.engine_is_behind():
        world.done["put back"] += 1
    if world.needs_a_person():
        running = [node for node in world.nodes.values() if node.machine]
        best = max(running, key=lambda node: node.announcement().rank)
        ask_to_lead(world, best)


def _any(world: World, random: Random) -> Node:
    return random.choice(list(world.nodes.values()))


def _twice(world: World, random: Random, ask: Callable[[], None]) -> None:
    ask()
    if random.random() < 0.3:
        world.after(random.expovariate(1 / 300), ask)


def _try(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except ValueError:
        return False
    return True
