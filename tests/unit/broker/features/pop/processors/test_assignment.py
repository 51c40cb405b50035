"""Who gets which queues."""

import pytest

from rockhopper.broker.features.pop.processors.assignment import (
    allocate_by_circle,
    allocate_for_pop,
    allocate_on_average,
)

QUEUES = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)]


@pytest.mark.parametrize("allocate", [allocate_on_average, allocate_by_circle])
@pytest.mark.parametrize("clients", range(1, 8))
def test_every_queue_has_one_owner(allocate: object, clients: int) -> None:
    assert callable(allocate)
    parts = [allocate(index, clients, QUEUES) for index in range(clients)]
    assert sorted(queue for part in parts for queue in part) == QUEUES
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_first_clients_get_one_more() -> None:
    assert allocate_on_average(0, 2, QUEUES) == QUEUES[:3]
    assert allocate_on_average(1, 2, QUEUES) == QUEUES[3:]
    assert allocate_by_circle(1, 2, QUEUES) == [QUEUES[1], QUEUES[3]]


@pytest.mark.parametrize(("share", "clients"), [(0, 9), (-1, 9), (8, 9), (9, 9), (1, 2)])
def test_popping_clients_share_everything(share: int, clients: int) -> None:
    found = allocate_for_pop(allocate_on_average, 1, clients, QUEUES, share)
    assert found == [("a", -1), ("b", -1)]


def test_popping_clients_share_with_their_neighbours() -> None:
    found = [allocate_for_pop(allocate_on_average, i, 4, QUEUES, 1) for i in range(4)]
    assert found == [QUEUES[:3], QUEUES[2:4], QUEUES[3:], [QUEUES[4], *QUEUES[:2]]]


def test_every_popping_client_gets_a_queue_when_there_are_many() -> None:
    found = [allocate_for_pop(allocate_on_average, i, 7, QUEUES, 1) for i in range(7)]
    assert found == [[queue] for queue in [*QUEUES, *QUEUES[:2]]]
    assert allocate_for_pop(allocate_on_average, 0, 7, [], 1) == []
