"""The suite of faults sees what it is there to see: each promise is broken once by hand."""

import random
from collections.abc import Callable

import pytest

from tests.chaos import topics
from tests.chaos.ledger import Commit, Fact, Kind, Ledger, Publication
from tests.chaos.outcome import outcome_of
from tests.chaos.verdict import Found, Sighting, Verdict, judge

CUT_S = 100.0


def sighting(fact: Fact, offset: int, time_ms: int = 5000) -> Sighting:
    return Sighting(fact.topic, fact.body, 0, offset, time_ms)


class Store:
    """A ledger, and a reading of it in which everything is as promised."""

    def __init__(self) -> None:
        self.ledger = Ledger(random.Random(1), now_s=lambda: CUT_S - 1)
        self.facts: dict[Kind, Fact] = {
            kind: self.ledger.expect(kind.name.lower(), kind)
            for kind in Kind
            if kind is not Kind.ROLLED_BACK
        }
        self.rolled_back = self.ledger.expect(topics.PAID, Kind.ROLLED_BACK)
        self.batch = [self.ledger.expect("batches", Kind.BATCH, batch="batch 1") for _ in range(3)]
        self.ordered = [
            self.ledger.expect("lined", Kind.ORDERED, order=("key", n)) for n in range(2)
        ]
        self.facts[Kind.LEVEL].due_ms = 4000
        self.ledger.acknowledged(*self.ledger.facts.values())
        self.ledger.commits.append(Commit(0, 7, CUT_S - 3, CUT_S - 2))
        self.ledger.published.append(Publication(4, {"p0": 1}, CUT_S - 2))
        self.found = Found(
            [
                sighting(fact, offset)
                for offset, fact in enumerate(self.ledger.facts.values())
                if fact.kind is not Kind.ROLLED_BACK
            ],
            {self.facts[Kind.POPPED].body: 1},
            {0: 7},
            4,
        )

    def judge(self, moment_s: float = CUT_S, *, pops_settle: bool = True) -> Verdict:
        return judge(self.ledger, self.found, moment_s, pops_settle=pops_settle)

    def lose(self, fact: Fact) -> None:
        self.found.messages = [one for one in self.found.messages if one.body != fact.body]


def test_a_store_that_has_everything_is_good() -> None:
    verdict = Store().judge()
    assert (verdict.lost, verdict.repeated, verdict.wrong) == ([], [], [])
    assert verdict.acknowledged == len(Kind) - 1 + 3 + 2
    assert outcome_of("kill", 1, verdict, may_repeat=False).is_good


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.ROLLED_BACK])
def test_an_acknowledged_message_that_is_missing_is_lost(kind: Kind) -> None:
    store = Store()
    store.lose(store.facts[kind])
    verdict = store.judge()
    assert verdict.lost == [store.facts[kind]]
    outcome = outcome_of("kill", 1, verdict)
    assert (outcome.lost, outcome.is_good) == (1, False)
    assert kind in outcome.complaints[0]


def test_what_was_acknowledged_after_the_cut_is_not_asked_for() -> None:
    store = Store()
    store.lose(store.facts[Kind.PLAIN])
    store.facts[Kind.PLAIN].acknowledged_s = CUT_S + 1
    assert store.judge().lost == []
    assert store.judge(CUT_S + 2).lost == [store.facts[Kind.PLAIN]]


def test_a_message_that_is_there_twice_is_repeated() -> None:
    store = Store()
    store.found.messages.append(sighting(store.facts[Kind.PLAIN], 99))
    verdict = store.judge()
    assert [fact for fact, _ in verdict.repeated] == [store.facts[Kind.PLAIN]]
    assert not outcome_of("kill", 1, verdict, may_repeat=False).is_good


def be_strange(store: Store) -> None:
    store.found.messages.append(Sighting("plain", b"plain 1 torn", 0, 99, 5000))


def be_torn(store: Store) -> None:
    first = store.found.messages[0]
    store.found.messages[0] = Sighting(first.topic, first.body[:-1] + b"?", 0, 0, 5000)


def be_in_another_topic(store: Store) -> None:
    first = store.found.messages[0]
    store.found.messages.append(Sighting("elsewhere", first.body, 0, 99, 5000))


def commit_what_was_rolled_back(store: Store) -> None:
    store.found.messages.append(sighting(store.rolled_back, 99))


def halve_a_batch(store: Store) -> None:
    for fact in store.batch:
        fact.acknowledged_s = None
        fact.was_refused = True
    store.lose(store.batch[1])


def turn_the_order(store: Store) -> None:
    for fact in store.ordered:
        store.lose(fact)
    store.found.messages += [sighting(store.ordered[1], 50), sighting(store.ordered[0], 51)]


def come_early(store: Store) -> None:
    store.facts[Kind.LEVEL].due_ms = 6000


def turn_the_time(store: Store) -> None:
    first = store.found.messages[0]
    store.found.messages[0] = sighting(store.facts[Kind.PLAIN], first.queue_offset, 6000)
    late = store.ledger.expect(first.topic, Kind.PLAIN)
    store.found.messages.append(sighting(late, 100, 5999))


def pop_again(store: Store) -> None:
    store.facts[Kind.POPPED].settling_s = store.facts[Kind.POPPED].settled_s = 1.0


def pop_a_stranger(store: Store) -> None:
    store.found.popped = {store.facts[Kind.POPPED].body: 1, b"stranger": 1}


def pop_under_load_what_was_settled(store: Store) -> None:
    store.ledger.popped_again.append((store.facts[Kind.POPPED], 1.0, CUT_S - 1))


def invent_an_offset(store: Store) -> None:
    store.found.offsets[0] = 8


def forget_the_sink(store: Store) -> None:
    store.found.last_batch_id = 3


def see_something_under_load(store: Store) -> None:
    store.ledger.problems.append("a reply was mixed up")


@pytest.mark.parametrize(
    "break_it",
    [
        be_strange,
        be_torn,
        be_in_another_topic,
        commit_what_was_rolled_back,
        halve_a_batch,
        turn_the_order,
        come_early,
        turn_the_time,
        pop_again,
        pop_under_load_what_was_settled,
        pop_a_stranger,
        invent_an_offset,
        forget_the_sink,
        see_something_under_load,
    ],
)
def test_what_must_not_be_is_wrong(break_it: Callable[[Store], None]) -> None:
    store = Store()
    break_it(store)
    verdict = store.judge()
    assert len(verdict.wrong) == 1, verdict.wrong
    assert not outcome_of("kill", 1, verdict, may_lose=True).is_good


def test_what_is_excused_may_be_popped_again() -> None:
    store = Store()
    pop_under_load_what_was_settled(store)
    pop_again(store)
    judged = judge(store.ledger, store.found, CUT_S, may_come_again=lambda at_s: at_s == 1)
    assert judged.wrong == []


def test_an_acknowledgement_is_excused_by_its_own_time_and_not_by_that_of_a_later_one() -> None:
    store = Store()
    pop_under_load_what_was_settled(store)
    store.facts[Kind.POPPED].settled_s = CUT_S
    judged = judge(store.ledger, store.found, CUT_S, may_come_again=lambda at_s: at_s == 1)
    assert judged.wrong == []
    judged = judge(store.ledger, store.found, CUT_S, may_come_again=lambda at_s: at_s == CUT_S)
    (wrong,) = judged.wrong
    assert wrong.endswith(f"was acknowledged and popped again {CUT_S - 2:.1f} s later")


def test_a_batch_that_nobody_answered_may_be_torn_and_one_that_was_refused_may_not() -> None:
    store = Store()
    halve_a_batch(store)
    for fact in store.batch:
        fact.was_refused = False
    assert store.judge().wrong == []
    store.batch[0].was_refused = True
    store.batch[1].was_refused = True
    assert store.judge().wrong == ["batch 1 is there by 1 of 2 messages"]


def test_a_power_cut_may_tear_a_batch_that_was_not_acknowledged() -> None:
    store = Store()
    halve_a_batch(store)
    verdict = judge(store.ledger, store.found, CUT_S, whole_batches=frozenset({Kind.SUNK}))
    assert (verdict.wrong, verdict.lost) == ([], [])
    store.ledger.acknowledged(*store.batch)
    verdict = judge(store.ledger, store.found, CUT_S, whole_batches=frozenset({Kind.SUNK}))
    assert verdict.lost == [store.batch[1]]


def test_a_parcel_that_is_never_popped_is_lost_and_one_that_was_settled_need_not_come() -> None:
    store = Store()
    store.found.popped = {}
    assert store.judge().lost == [store.facts[Kind.POPPED]]
    store.facts[Kind.POPPED].settling_s = 1.0
    assert store.judge().lost == []


def test_after_a_power_cut_settled_parcels_may_come_again() -> None:
    store = Store()
    pop_again(store)
    verdict = store.judge(pops_settle=False)
    assert (verdict.wrong, len(verdict.repeated)) == ([], 1)


def test_a_forgotten_offset_is_as_old_as_its_acknowledgement() -> None:
    store = Store()
    assert store.judge().offsets_behind_s == 0
    store.found.offsets[0] = 6
    assert store.judge().offsets_behind_s == pytest.approx(2.0)
    store.found.offsets.clear()
    assert store.judge().offsets_behind_s == pytest.approx(2.0)
