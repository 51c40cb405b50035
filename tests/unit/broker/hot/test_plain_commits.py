"""A commit is answered, and noted, as the general way would; and most do not go that way."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.hot.plain_commits import PlainCommits
from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroup
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode
from rockhopper.protocol.frame import Frame
from tests.support.hot_broker import HotBroker, HotPeer

FIELDS = {"consumerGroup": "readers", "topic": "orders", "queueId": "1", "commitOffset": "8"}


def commit(flag: int = 0, opaque: int = 5, **fields: object) -> Frame:
    parts = {"code": 15, "extFields": FIELDS | fields, "flag": flag, "opaque": opaque}
    parts |= {"language": "JAVA", "serializeTypeCurrentRPC": "JSON", "version": 479}
    return 0, json.dumps(parts, separators=(",", ":")).encode(), b""


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[HotBroker]]:
    """Give two alike, of which the second serves commits the general way."""
    made = [HotBroker(tmp_path / name) for name in ("hot", "general")]
    for broker in made:
        broker.served.tables.groups.put(SubscriptionGroup("readers"))
        broker.served.tables.offsets.commit("orders", "readers", 1, 7)
    made[1].serve_generally()
    yield made
    for broker in made:
        broker.close()


def outcome(broker: HotBroker, *frames: Frame) -> tuple[bytes, dict[int, int | None]]:
    """What is answered, and what is committed then."""
    broker.peer.written.clear()
    broker.serve(list(frames))
    offsets = broker.served.tables.offsets
    return b"".join(broker.peer.written), {
        number: offsets.get("orders", "readers", number) for number in range(4)
    }


CASES: dict[str, tuple[Frame, bool]] = {
    "forward": (commit(), True),
    "the same": (commit(commitOffset="7"), True),
    "numbers": (commit(queueId=1, commitOffset=9), True),
    "oneway, the same": (commit(FLAG_ONEWAY, commitOffset="7"), True),
    "oneway, of nothing that was read": (commit(FLAG_ONEWAY), False),
    "more fields": (commit(bname="broker-a", ns="x"), True),
    "back": (commit(commitOffset="6"), False),
    "nothing": (commit(commitOffset="-1"), False),
    "the first": (commit(queueId="2"), False),
    "another queue": (commit(queueId="77"), False),
    "no queue": (commit(queueId="-1"), False),
    "no number": (commit(queueId="one"), False),
    "too large a number": (commit(commitOffset=1 << 70), False),
    "another topic": (commit(topic="bills"), False),
    "another group": (commit(consumerGroup="writers"), False),
    "marked": (commit(rh="1"), False),
    "an answer": (commit(FLAG_RESPONSE), False),
}


@pytest.mark.parametrize(("frame", "is_plain"), CASES.values(), ids=CASES.keys())
def test_what_comes_of_a_commit_is_what_the_general_way_makes_of_it(
    brokers: list[HotBroker], frame: Frame, is_plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    take: Callable[..., tuple[int, bytes]] = PlainCommits.serve

    def noted(*arguments: Any) -> tuple[int, bytes]:
        result = take(*arguments)
        taken.append(result[0])
        return result

    monkeypatch.setattr(PlainCommits, "serve", noted)
    found, expected = (outcome(broker, frame) for broker in brokers)
    assert found == expected
    assert taken == [int(is_plain)]


def test_while_a_reset_is_pending_it_goes_the_general_way(brokers: list[HotBroker]) -> None:
    for broker in brokers:
        broker.served.tables.offsets.reset("orders", "readers", 1, 2)
    found, expected = (outcome(broker, commit()) for broker in brokers)
    assert found == expected
    assert b"reset" in found[0]


def test_a_member_that_commits_before_its_heartbeat_after_a_restart_learns_of_the_others(
    brokers: list[HotBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    for broker in brokers:
        consumers = broker.served.kernel.consumers
        monkeypatch.setattr(consumers, "is_remembered", lambda group: group == "readers")
        early, member = broker.peer, HotPeer()
        client = Client(member.connection, "c1", language=0, version=479)
        consumers.register("readers", client, ConsumeSettings("CONSUME_PASSIVELY"), {})
        for broker.peer in (early, member):
            outcome(broker, commit())
        changed = (int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED), {"consumerGroup": "readers"})
        assert early.requests == member.requests == [changed]


def test_its_answer_comes_in_its_place(brokers: list[HotBroker]) -> None:
    frames = [commit(opaque=1), commit(opaque=2, commitOffset="3"), commit(opaque=3)]
    found, expected = (outcome(broker, *frames) for broker in brokers)
    assert found == expected
    assert found[0].count(b'"opaque"') == 3


def test_those_that_move_one_offset_are_noted_once(
    brokers: list[HotBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[int] = []
    commit_offset = ConsumerOffsetTable.commit

    def noted(self: ConsumerOffsetTable, *place: Any, **how: Any) -> bool:
        moved.append(place[-1])
        return commit_offset(self, *place, **how)

    monkeypatch.setattr(ConsumerOffsetTable, "commit", noted)
    frames = [commit(opaque=number, commitOffset=str(10 + number)) for number in range(5)]
    outcome(brokers[0], *frames)
    assert moved == [14]


@pytest.mark.parametrize(
    "offsets", [["9", "8", "12"], ["9", "-1", "9"], ["7", "7", "6", "8"], ["9", "x", "10"]]
)
def test_one_that_goes_back_among_others_is_told_so(
    brokers: list[HotBroker], offsets: list[str]
) -> None:
    frames = [commit(opaque=number, commitOffset=text) for number, text in enumerate(offsets)]
    frames.append(commit(opaque=77, queueId="2", commitOffset="3"))
    found, expected = (outcome(broker, *frames) for broker in brokers)
    assert found == expected


def test_a_commit_of_a_static_topic_goes_the_general_way(
    brokers: list[HotBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = brokers[0]
    monkeypatch.setattr(broker.served.tables.topics, "mappings", {"orders": None})
    commits = PlainCommits(broker.served.kernel)
    assert commits.serve(broker.peer.connection, [commit()], 0) == (0, b"")
