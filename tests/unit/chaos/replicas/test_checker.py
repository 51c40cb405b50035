"""The checker of replica sets sees each thing that it is there to see: each is broken by hand."""

import json
from pathlib import Path

import pytest

from rockhopper.protocol.store.table_changes import (
    TableChange,
    encode_change,
    encode_file,
    fingerprint,
)
from tests.chaos.ledger import Commit, Fact, Kind, Ledger, Placement
from tests.chaos.replicas import checker
from tests.chaos.replicas.clients.administering import Look, Records
from tests.chaos.replicas.clients.locking import Holding
from tests.chaos.replicas.logs import ReadLog
from tests.chaos.replicas.nemesis.nemesis import MENDED_WITHIN_S, Period

PLACE = ("plain", 0, 0)


def log_of(*bodies: bytes, replica: int = 1) -> ReadLog:
    found = ReadLog(replica)
    for number, body in enumerate(bodies):
        found.pieces[number] = b"head" + body
        found.places["plain", 0, number] = number
        found.bodies.add(("plain", body))
    return found


def acknowledged(ledger: Ledger, body: bytes, kind: Kind = Kind.PLAIN) -> Fact:
    fact = ledger.expect("plain", kind, body)
    ledger.acknowledged(fact)
    return fact


def test_what_one_replica_lacks_is_lost_there() -> None:
    ledger = Ledger()
    acknowledged(ledger, b"plain 1 ")
    acknowledged(ledger, b"rolled 2 ", Kind.ROLLED_BACK)
    ledger.expect("plain", Kind.PLAIN, b"plain 3 ")
    logs = [log_of(b"plain 1 "), log_of(replica=2)]
    assert list(checker.missing_in_logs(ledger, logs)) == [
        "lost at replica 2: plain message 1 of plain"
    ]


def test_what_was_seen_stays_at_its_place_on_every_replica() -> None:
    ledger = Ledger()
    ledger.saw(*PLACE, b"one")
    ledger.saw(*PLACE, b"one")
    assert list(checker.moved(ledger, [log_of(b"one"), log_of(b"one", replica=2)])) == []
    assert list(checker.moved(ledger, [log_of(b"one"), log_of(b"two", replica=2)])) == [
        f"replica 2 has another message at {PLACE} than b'one'"
    ]
    assert list(checker.moved(ledger, [log_of(replica=3)])) == [
        f"replica 3 has nothing at {PLACE}, where b'one' was seen"
    ]
    ledger.saw(*PLACE, b"two")
    assert list(checker.moved(ledger, [])) == [
        "plain queue 0 offset 0 held b'one' and later b'two'"
    ]


def test_a_log_whose_first_files_are_gone_says_nothing_of_places() -> None:
    ledger, log = Ledger(), log_of()
    ledger.saw(*PLACE, b"one")
    log.start_offset = 4096
    assert list(checker.moved(ledger, [log])) == []


def placement(offset: int, asked_s: float, acknowledged_s: float, queue_id: int = 0) -> Placement:
    return Placement("plain", queue_id, offset, b"m%d" % offset, asked_s, acknowledged_s)


def test_a_message_that_was_acknowledged_before_another_was_sent_lies_in_front_of_it() -> None:
    overlapping = [placement(0, 2, 4), placement(1, 1, 3), placement(2, 3.5, 5)]
    assert list(checker.out_of_order(overlapping)) == []
    assert list(checker.out_of_order([placement(0, 2, 4), placement(1, 1, 3, queue_id=1)])) == []
    wrong = list(checker.out_of_order([placement(0, 5, 6), placement(1, 4, 4.5)]))
    assert len(wrong) == 1
    assert "b'm1' was acknowledged before b'm0' was sent" in wrong[0]
    assert len(list(checker.out_of_order([*overlapping, placement(3, 0, 1)]))) == 1


def commits(*offsets: int) -> Records:
    return Records(commits=[Commit(0, offset, offset - 0.1, float(offset)) for offset in offsets])


def test_a_committed_offset_is_forgotten_only_near_a_fault() -> None:
    records = commits(1, 2)
    records.looks = [Look(2, 3, 3.1)]
    assert list(checker.forgotten_commits(records, [])) == []
    records.looks = [Look(1, 3, 3.1)]
    assert list(checker.forgotten_commits(records, [])) == [
        "offset 2 was committed 1.00 s before 1 was answered"
    ]
    assert list(checker.forgotten_commits(records, [Period("kill", 2.1, 2.2)])) == []
    assert len(list(checker.forgotten_commits(records, [Period("kill", 2.3, 2.4)]))) == 1
    long_ago = Period("kill", -20.0, 1.9 - MENDED_WITHIN_S)
    assert len(list(checker.forgotten_commits(records, [long_ago]))) == 1


def test_an_offset_that_nobody_committed_is_wrong_at_any_time() -> None:
    records = commits(1)
    records.looks = [Look(7, 3, 3.1)]
    everywhere = [Period("kill", 0, 10)]
    assert list(checker.forgotten_commits(records, everywhere)) == [
        "offset 7 was committed by nobody"
    ]


@pytest.mark.parametrize(("settled_s", "is_excused"), [(5.0, True), (4.0, False)])
def test_a_settled_message_comes_again_only_near_a_fault(
    settled_s: float, is_excused: bool
) -> None:
    assert checker.may_pop_again(settled_s, [Period("kill", 5.1, 6)]) is is_excused


def test_what_was_created_is_on_every_replica(tmp_path: Path) -> None:
    stores = {}
    for replica, names in ((1, ["made", "other"]), (2, ["other", "gone"])):
        stores[replica] = tmp_path / str(replica)
        config = stores[replica] / "config"
        config.mkdir(parents=True)
        table = {"topicConfigTable": {key: {"readQueueNums": 2} for key in names}}
        (config / "topics.json").write_text(json.dumps(table))
        groups: dict[str, object] = {"subscriptionGroupTable": {"group": {}}}
        (config / "subscriptionGroup.json").write_text(json.dumps(groups))
    records = Records(topics={"made": 2, "gone": None}, groups=["group"])
    assert list(checker.forgotten_changes(records, stores)) == [
        "replica 2 has topic made with None queues, not 2",
        "replica 2 has topic gone with 2 queues, not None",
    ]
    records = Records(topics={"other": 3})
    assert len(list(checker.forgotten_changes(records, stores))) == 2
    records = Records(groups=["lost"])
    assert len(list(checker.forgotten_changes(records, stores))) == 2
    for store in stores.values():
        content = (store / "config" / "subscriptionGroup.json").read_bytes()
        changes = store / "rockhopper" / "tables" / "subscriptionGroup.json"
        changes.mkdir(parents=True)
        noted = encode_file(fingerprint(content)) + encode_change(TableChange("lost", {}, {}))
        (changes / f"{1:020d}.records").write_bytes(noted)
    assert list(checker.forgotten_changes(records, stores)) == []


@pytest.mark.parametrize(
    ("member", "from_s", "complaints"),
    [("two", 1.9, 1), ("two", 2.0, 0), ("one", 1.5, 0), ("two", 0.5, 1)],
)
def test_a_queue_has_one_holder(member: str, from_s: float, complaints: int) -> None:
    holdings = [Holding("one", 0, 1, 2), Holding("two", 1, 0, 9), Holding(member, 0, from_s, 3)]
    assert len(list(checker.held_by_two(holdings))) == complaints


def test_a_short_holding_does_not_hide_a_long_one() -> None:
    holdings = [Holding("one", 0, 1, 9), Holding("one", 0, 2, 3), Holding("two", 0, 5, 6)]
    assert list(checker.held_by_two(holdings)) == [
        "queue 0 was held by one until 9.000 and by two from 5.000 on"
    ]


def test_an_epoch_has_one_master() -> None:
    assert list(checker.second_leaders({1: {1}, 2: {3}})) == []
    assert list(checker.second_leaders({1: {1}, 2: {3, 2}})) == ["in epoch 2 replicas [2, 3] led"]


def test_of_many_complaints_the_first_are_told() -> None:
    assert checker.in_short(iter("abc")) == ["a", "b", "c"]
    assert checker.in_short(map(str, range(9))) == [*"01234", "and 4 more like these"]
