"""Allocation: exactly the split that Apache's Java client computes."""

from pathlib import Path

import pytest

from rockhopper.client.consuming.allocation import (
    Allocation,
    Average,
    AverageByCircle,
    ByConfiguration,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    find_allocation,
    sort_clients,
)
from rockhopper.client.queues import MessageQueue

BROKERS = {
    "average": ["a"],
    "circle": ["a"],
    "hash": ["a", "b"],
    "room": ["r1@a", "r2@b", "r3@c", "plain", "r1@x@y", "r2@"],
    "nearby": ["r1@a", "r2@b", "r3@c"],
}
RULES: dict[str, Allocation] = {
    "average": Average(),
    "circle": AverageByCircle(),
    "hash": ConsistentHash(),
    "room": ByMachineRoom(["r1", "r2"]),
    "nearby": MachineRoomNearby(lambda name: name.split("@")[0], lambda cid: cid.split("-")[0]),
}


def read_golden() -> list[tuple[str, int, list[str], list[list[str]]]]:
    """Cases: strategy, queues, clients, and what each of these gets."""
    path = Path(__file__).with_name("allocations.txt")
    lines = [line.split("|") for line in path.read_text().splitlines() if line[0] != "#"]
    cases = []
    position = 0
    while position < len(lines):
        strategy, queues, client, _ = lines[position]
        count = int(client.rpartition("/")[2])
        members = lines[position : position + count]
        clients = [member[2].rpartition("/")[0] for member in members]
        shares = [member[3].split(",") if member[3] else [] for member in members]
        cases.append((strategy, int(queues), clients, shares))
        position += count
    return cases


@pytest.mark.parametrize("strategy", RULES)
def test_shares_are_those_of_the_java_client(strategy: str) -> None:
    cases = [case for case in read_golden() if case[0] == strategy]
    assert len(cases) >= 5
    for _, count, clients, shares in cases:
        names = BROKERS[strategy]
        queues = sorted(
            MessageQueue("orders", name, number)
            for name in names
            for number in range(count // len(names))
        )
        for client, share in zip(clients, shares, strict=True):
            own = RULES[strategy].allocate(client, queues, clients)
            assert [f"{queue.broker_name}:{queue.queue_id}" for queue in own] == share


@pytest.mark.parametrize("rule", [Average(), AverageByCircle(), ConsistentHash()])
def test_every_queue_has_one_owner(rule: Allocation) -> None:
    queues = [MessageQueue("orders", name, n) for name in ("a", "b") for n in range(7)]
    for count in range(1, 20):
        clients = sort_clients(f"10.0.0.{n}@{n}" for n in range(count))
        shares = [rule.allocate(client, queues, clients) for client in clients]
        assert sorted(queue for share in shares for queue in share) == queues


def test_few_queues_move_in_a_consistent_hash_when_a_member_leaves() -> None:
    queues = [MessageQueue("orders", "a", number) for number in range(64)]
    clients = [f"10.0.0.{number}@1" for number in range(4)]
    rule = ConsistentHash()
    before = {queue: c for c in clients for queue in rule.allocate(c, queues, clients)}
    left = clients[1:]
    after = {queue: c for c in left for queue in rule.allocate(c, queues, left)}
    moved = [queue for queue in queues if before[queue] != after[queue]]
    assert all(before[queue] == clients[0] for queue in moved)


def test_a_configured_member_gets_its_queues_whoever_else_is_there() -> None:
    queues = [MessageQueue("orders", "a", number) for number in range(4)]
    rule = ByConfiguration([queues[2], MessageQueue("other", "a", 0)])
    assert rule.allocate("me", queues, ["me", "you"]) == [queues[2]]


def test_client_ids_are_sorted_as_java_sorts_them() -> None:
    # U+FFFD is one code unit; an emoji is two, the first of them smaller.
    assert sort_clients(["\ufffd", "😀", "b", "a"]) == ["a", "b", "😀", "\ufffd"]


def test_rules_have_names() -> None:
    assert isinstance(find_allocation("average"), Average)
    assert isinstance(find_allocation("by-circle"), AverageByCircle)
    assert isinstance(find_allocation("consistent-hash"), ConsistentHash)
    rule = ByMachineRoom(["r1"])
    assert find_allocation(rule) is rule
    with pytest.raises(ValueError, match='"by-circle"'):
        find_allocation("circle")
