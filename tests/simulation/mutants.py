"""Each rule of the replica disabled: the simulator must detect every one.

Each mutant has a stored life that it breaks, because a search takes up to a minute. To find another
life after a change of the machine or the world: ``python -m tests.simulation.mutants NAME``.
"""

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import PropertyMock, patch

from rockhopper.broker.replication.election import actions
from rockhopper.broker.replication.election.campaigning import Campaigning
from rockhopper.broker.replication.election.following import Following
from rockhopper.broker.replication.election.leading import MasterTerm
from rockhopper.broker.replication.election.machine import Machine, ReplicaRole
from rockhopper.broker.replication.election.messages import Hello, TakeOver, Welcome
from rockhopper.broker.replication.election.replica_set import Replica, SeenState, SetState, SetView
from rockhopper.broker.replication.election.replica_state import ReplicaState
from tests.simulation import faults, scenarios
from tests.simulation.replica import Disk, Node
from tests.simulation.rules import Violation
from tests.simulation.world import World

SCENES = 20
"""The number of seeds that are tried for each scenario."""

Mutant = Callable[[ExitStack], None]


def _patch(stack: ExitStack, owner: type, name: str, by: Any) -> None:
    stack.enter_context(patch.object(owner, name, by))


def the_master_alone_confirms(stack: ExitStack) -> None:
    _patch(stack, MasterTerm, "required", property(lambda term: frozenset({term.me})))


def any_one_follower_confirms(stack: ExitStack) -> None:
    def confirm(term: MasterTerm) -> bool:
        held = [
            term.followers[each].acknowledgeable_offset
            for each in term.required
            if each in term.followers
        ]
        confirmed = min(term.acknowledgeable_offset, max(held, default=-1))
        if not term.state.is_complete or confirmed <= term.replicated_offset:
            return False
        term.replicated_offset = confirmed
        return True

    _patch(stack, MasterTerm, "confirm", confirm)


def a_leaving_member_is_not_waited_for(stack: ExitStack) -> None:
    def required(term: MasterTerm) -> frozenset[Replica]:
        return term.asked.in_sync if term.asked else term.state.in_sync

    _patch(stack, MasterTerm, "required", property(required))


def a_joining_member_is_not_waited_for(stack: ExitStack) -> None:
    _patch(stack, MasterTerm, "required", property(lambda term: term.state.in_sync))


def an_unknown_outcome_is_a_refusal(stack: ExitStack) -> None:
    answered = MasterTerm.answered

    def forget(term: MasterTerm, outcome: Any, version: int) -> None:
        answered(term, outcome, version)
        term.asked = None

    _patch(stack, MasterTerm, "answered", forget)


def a_state_from_the_past_is_believed(stack: ExitStack) -> None:
    _patch(stack, SetState, "contradicts", lambda state, seen_state: False)


def what_others_remember_is_not_asked(stack: ExitStack) -> None:
    _patch(stack, SetView, "is_behind", _is_behind_by_own_seen_state)


def _is_behind_by_own_seen_state(view: SetView, seen_state: SeenState) -> bool:
    return view.state is not None and view.state.contradicts(seen_state)


def anybody_is_electable(stack: ExitStack) -> None:
    def is_electable(campaigning: Campaigning, state: SetState) -> bool:
        return _standing(campaigning).is_clean

    _patch(stack, Campaigning, "is_electable", is_electable)


def who_lost_its_memory_is_electable(stack: ExitStack) -> None:
    def is_electable(campaigning: Campaigning, state: SetState) -> bool:
        return _standing(campaigning).me in state.in_sync

    _patch(stack, Campaigning, "is_electable", is_electable)


def another_disk_is_the_same_replica(stack: ExitStack) -> None:
    def is_electable(campaigning: Campaigning, state: SetState) -> bool:
        mine = _standing(campaigning)
        return mine.is_clean and mine.me.id in {each.id for each in state.in_sync}

    _patch(stack, Campaigning, "is_electable", is_electable)


def a_backup_is_not_noticed(stack: ExitStack) -> None:
    from tests.simulation.engine import FakeEngine

    count_start = FakeEngine.count_start

    def believe(engine: FakeEngine, replica: Replica, count: int) -> bool:
        count_start(engine, replica, count)
        return True

    _patch(stack, FakeEngine, "count_start", believe)


def a_voted_epoch_is_forgotten(stack: ExitStack) -> None:
    """The promise is in memory only, and the replica meanwhile continues to follow."""
    a_state_from_the_past_is_believed(stack)  # else the old state is noticed first

    def voted_epoch(
        world: World, node: Node, machine: Machine, action: actions.StoreVotedEpoch
    ) -> None:
        world.after(
            1, world.call, node, node.incarnation, lambda m: m.voted_epoch_stored(action.epoch, 0)
        )

    _patch(stack, World, "_store_voted_epoch", voted_epoch)


def a_candidate_asks_before_its_voted_epoch_is_on_disk(stack: ExitStack) -> None:
    a_state_from_the_past_is_believed(stack)  # else the old state is noticed first
    vote = World._store_voted_epoch

    def later(world: World, node: Node, machine: Machine, action: actions.StoreVotedEpoch) -> None:
        if node.machine and node.machine.role is ReplicaRole.CANDIDATE:
            world.after(
                1,
                world.call,
                node,
                node.incarnation,
                lambda m: m.voted_epoch_stored(action.epoch, 0),
            )
        else:
            vote(world, node, machine, action)

    _patch(stack, World, "_store_voted_epoch", later)


def a_smaller_epoch_is_followed(stack: ExitStack) -> None:
    """The master of the smaller epoch is not told of the larger one either."""
    a_state_from_the_past_is_believed(stack)  # else the old state is noticed first

    def hello(replica: Replica, incarnation: str, voted_epoch: int, *rest: Any) -> Hello:
        return Hello(replica, incarnation, 0, *rest)

    stack.enter_context(patch("rockhopper.broker.replication.election.following.Hello", hello))
    _patch(stack, Following, "_least_epoch", PropertyMock(return_value=0))
    _patch(stack, Following, "takes", lambda following, link, epoch: link == following.link)


def nothing_is_cut(stack: ExitStack) -> None:
    def cut(following: Following, welcome: Welcome) -> None:
        following.out.append(actions.Cut(1 << 60, welcome.epochs, seed=False))

    _patch(stack, Following, "_cut", cut)


def a_set_falls_below_its_floor(stack: ExitStack) -> None:
    changed = SetState.changed

    def without_floor(state: SetState, **who: Any) -> SetState | None:
        found = changed(replace(state, min_in_sync=0), **who)
        return replace(found, min_in_sync=state.min_in_sync) if found else None

    _patch(stack, SetState, "changed", without_floor)


def the_tail_is_shown_before_it_is_confirmed(stack: ExitStack) -> None:
    _patch(stack, MasterTerm, "is_settled", property(lambda term: True))


def the_tail_is_not_counted_in_queue_offsets(stack: ExitStack) -> None:
    lead = World._lead

    def from_confirmed(world: World, node: Node, machine: Machine, action: actions.Lead) -> None:
        lead(world, node, machine, action)
        log = node.disk.log[: machine.replica_state.replicated_offset]
        node.next_queue_offset = log[-1].queue_offset + 1 if log else 0

    _patch(stack, World, "_lead", from_confirmed)


def an_epoch_is_not_on_disk_before_its_data(stack: ExitStack) -> None:
    def enter(world: World, node: Node, machine: Machine, action: actions.EnterEpoch) -> None:
        world.after(
            1, world.call, node, node.incarnation, lambda m: m.entered(node.now(world.now_ms))
        )

    _patch(stack, World, "_enter_epoch", enter)


def a_log_is_thrown_away_without_a_mark(stack: ExitStack) -> None:
    _patch(stack, Disk, "mark_unclean", lambda disk: None)


def an_older_connection_still_counts(stack: ExitStack) -> None:
    """The master still believes the earlier reports of a follower that has lost its tail."""
    greeted = Machine._handle_greeting

    def keep(machine: Machine, link: int, hello: Any, now_ms: int) -> None:
        before = machine.term.followers.get(hello.replica) if machine.term else None
        held = before.acknowledgeable_offset if before else -1
        greeted(machine, link, hello, now_ms)
        if machine.term and (after := machine.term.followers.get(hello.replica)):
            after.acknowledgeable_offset = max(held, hello.log_end)

    _patch(stack, Machine, "_handle_greeting", keep)


def a_new_master_tells_what_it_knows_to_be_confirmed(stack: ExitStack) -> None:
    """The new master reports less than was confirmed.

    A replica that has lost its tail then considers itself complete.
    """
    welcomed = Following._handle_welcome

    def believe(following: Following, welcome: Welcome) -> None:
        welcomed(following, replace(welcome, whole_offset=welcome.common_end))

    _patch(stack, Following, "_handle_welcome", believe)


def who_is_refused_an_unclean_election_is_clean(stack: ExitStack) -> None:
    lead_by_operator = Machine.lead_by_operator

    def clean_first(machine: Machine, now_ms: int) -> None:
        machine.replica_state.is_clean = True
        lead_by_operator(machine, now_ms)

    _patch(stack, Machine, "lead_by_operator", clean_first)


def an_operator_displaces_a_master(stack: ExitStack) -> None:
    """The operator deposes a master that was elected between the order and the request."""
    request = Campaigning.request

    def displace(campaigning: Campaigning, view: SetView, epoch: int) -> actions.Campaign:
        return replace(request(campaigning, view, epoch), displaced=view.leader)

    def may_ask(campaigning: Campaigning, view: SetView, epoch: int) -> bool:
        state = view.state
        return state is None or (state.epoch < epoch and campaigning.is_electable(state))

    _patch(stack, Campaigning, "request", displace)
    _patch(stack, Campaigning, "may_ask", may_ask)


def an_operators_wish_is_not_forgotten(stack: ExitStack) -> None:
    def over(campaigning: Campaigning) -> None:
        campaigning._since_ms = None

    is_due = Campaigning.is_due

    def remember(campaigning: Campaigning, *arguments: Any) -> bool:
        before = campaigning.why, campaigning.may_lose
        found = is_due(campaigning, *arguments)
        if before[1]:
            campaigning.why, campaigning.may_lose = before
        return found

    _patch(stack, Campaigning, "over", over)
    _patch(stack, Campaigning, "is_due", remember)


def what_was_confirmed_is_cut_after_an_unclean_election(stack: ExitStack) -> None:
    def cut(following: Following, welcome: Welcome) -> None:
        end = welcome.log_start if welcome.seed else welcome.common_end
        end = end if welcome.seed else min(end, following.replica_state.log_end)
        following.out.append(actions.Cut(end, welcome.epochs, seed=welcome.seed))

    _patch(stack, Following, "_cut", cut)


def who_is_to_take_over_need_not_be_in_sync(stack: ExitStack) -> None:
    take_over = Machine._take_over

    def at_once(machine: Machine, message: TakeOver, now_ms: int) -> None:
        with patch.object(Campaigning, "is_electable", lambda *_: True):
            take_over(machine, message, now_ms)

    def may_ask(campaigning: Campaigning, view: SetView, epoch: int) -> bool:
        return view.state is None or view.state.epoch < epoch

    _patch(stack, Machine, "_take_over", at_once)
    _patch(stack, Campaigning, "may_ask", may_ask)


def a_replica_may_be_scrapped_that_is_in_sync(stack: ExitStack) -> None:
    stack.enter_context(patch("tests.simulation.operator.forget", lambda view, replica_id: None))


def a_set_goes_on_unclean_without_those_that_are_away(stack: ExitStack) -> None:
    def is_best(campaigning: Campaigning, view: SetView) -> bool:
        mine, state = _standing(campaigning), view.state
        is_last = not any(member.is_clean for member in view.members.values())
        return bool(state and not view.leader and mine.me in state.in_sync and is_last)

    _patch(stack, Campaigning, "_is_best_after_power_cut", is_best)


def a_set_goes_on_unclean_with_the_shortest_log(stack: ExitStack) -> None:
    is_best = Campaigning._is_best_after_power_cut

    def is_worst(campaigning: Campaigning, view: SetView) -> bool:
        upside_down = {
            number: replace(member, log_end=-member.log_end, last_epoch=-member.last_epoch)
            for number, member in view.members.items()
        }
        state = replace(view.state, epoch=-view.state.epoch) if view.state else None
        return is_best(campaigning, replace(view, members=upside_down, state=state))

    _patch(stack, Campaigning, "_is_best_after_power_cut", is_worst)


def _standing(campaigning: Campaigning) -> ReplicaState:
    return campaigning.replica_state


class Broken(NamedTuple):
    """A mutant, and a life that it breaks: ``live(seed)``."""

    mutant: Mutant
    live: Callable[[int], World]
    seed: int


MUTANTS = (
    Broken(the_master_alone_confirms, scenarios.a_deposed_master_wakes, 0),
    Broken(any_one_follower_confirms, scenarios.a_member_joins_and_its_master_is_not_told, 0),
    Broken(a_leaving_member_is_not_waited_for, scenarios.a_master_is_cut_off_from_all, 0),
    Broken(
        a_joining_member_is_not_waited_for, scenarios.a_member_joins_and_its_master_is_not_told, 0
    ),
    Broken(an_unknown_outcome_is_a_refusal, scenarios.a_member_joins_and_its_master_is_not_told, 0),
    Broken(a_state_from_the_past_is_believed, scenarios.an_engine_is_put_back_from_a_backup, 0),
    Broken(what_others_remember_is_not_asked, scenarios.an_engine_is_put_back_from_a_backup, 0),
    Broken(anybody_is_electable, scenarios.an_operator_is_too_late, 0),
    Broken(who_lost_its_memory_is_electable, scenarios.an_operator_gives_up_what_others_hold, 0),
    Broken(another_disk_is_the_same_replica, scenarios.an_operator_gives_up_what_others_hold, 0),
    Broken(a_backup_is_not_noticed, faults.run, 54),
    Broken(a_voted_epoch_is_forgotten, scenarios.a_deposed_master_wakes, 0),
    Broken(a_candidate_asks_before_its_voted_epoch_is_on_disk, scenarios.a_deposed_master_wakes, 0),
    Broken(a_smaller_epoch_is_followed, scenarios.a_deposed_master_wakes, 0),
    Broken(nothing_is_cut, scenarios.a_master_is_cut_off_from_all, 0),
    Broken(a_set_falls_below_its_floor, faults.run, 7),
    Broken(the_tail_is_shown_before_it_is_confirmed, scenarios.a_deposed_master_wakes, 0),
    Broken(the_tail_is_not_counted_in_queue_offsets, scenarios.a_deposed_master_wakes, 0),
    Broken(an_epoch_is_not_on_disk_before_its_data, scenarios.a_deposed_master_wakes, 0),
    Broken(a_log_is_thrown_away_without_a_mark, scenarios.who_lost_its_tail_is_left_alone, 0),
    Broken(an_older_connection_still_counts, scenarios.a_deposed_master_wakes, 0),
    Broken(
        a_new_master_tells_what_it_knows_to_be_confirmed,
        scenarios.who_lost_its_tail_is_left_alone,
        0,
    ),
    Broken(who_is_refused_an_unclean_election_is_clean, faults.run, 30),
    Broken(an_operator_displaces_a_master, scenarios.an_operator_is_too_late, 0),
    Broken(an_operators_wish_is_not_forgotten, scenarios.an_operator_is_too_late, 0),
    Broken(
        what_was_confirmed_is_cut_after_an_unclean_election,
        scenarios.an_operator_gives_up_what_others_hold,
        0,
    ),
    Broken(
        who_is_to_take_over_need_not_be_in_sync,
        scenarios.a_word_to_take_over_comes_to_the_wrong_one,
        0,
    ),
    Broken(a_replica_may_be_scrapped_that_is_in_sync, faults.run, 25),
    Broken(a_set_goes_on_unclean_without_those_that_are_away, faults.run, 183),
    Broken(a_set_goes_on_unclean_with_the_shortest_log, faults.run, 875),
)


def find_life(mutant: Mutant, seeds: int) -> Broken | None:
    """Return the first life that *mutant* breaks, scenarios first."""
    lives = ((live, seed) for live in scenarios.SCENARIOS for seed in range(SCENES))
    with ExitStack() as stack:
        mutant(stack)
        for live, seed in (*lives, *((faults.run, seed) for seed in range(seeds))):
            try:
                live(seed)
            except Violation:
                return Broken(mutant, live, seed)
    return None


def main() -> None:
    """Print a life that breaks each mutant of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("mutant", nargs="+", choices=[each.mutant.__name__ for each in MUTANTS])
    parser.add_argument("--seeds", type=int, default=2000)
    options = parser.parse_args()
    for name in options.mutant:
        found = find_life(globals()[name], options.seeds)
        print(name, f"{found.live.__name__}({found.seed})" if found else "is broken by none")


if __name__ == "__main__":
    main()
