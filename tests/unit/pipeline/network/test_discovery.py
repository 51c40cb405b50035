"""Discovery: of which queues a group's offsets are asked for and committed."""

from typing import Any

import pytest

from rockhopper.client.queues import MessageQueue
from rockhopper.pipeline.network.discovery import Discovery
from rockhopper.pipeline.network.rules import read_rules

ROUTED, LEFT, GONE = (MessageQueue("t", "a", number) for number in range(3))


class Brokers:
    """They hold two queues, one of which the topic has left; its group stands at 3 in each."""

    def __init__(self) -> None:
        self.committed_offsets: dict[MessageQueue, int] = {}

    def ranges(
        self, queues: list[MessageQueue], *, with_left: bool
    ) -> dict[MessageQueue, tuple[int, int]]:
        assert queues == [ROUTED]
        return {ROUTED: (0, 5), LEFT: (0, 9)} if with_left else {ROUTED: (0, 5)}

    def commit(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        assert group == "g"
        self.committed_offsets |= offsets

    def committed(self, group: str, queues: list[MessageQueue]) -> dict[MessageQueue, int | None]:
        return dict.fromkeys(queues, 3)


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


def discovery(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, **options: str) -> Discovery:
    given = {"nameServer": "ns", "groupId": "g", "commitOffsets": "onBatch"} | options
    found = Discovery(read_rules(given, streaming=True))

    def queues(in_use: Any = ()) -> list[MessageQueue]:
        found._queues = [ROUTED]
        return [ROUTED]

    monkeypatch.setattr(Discovery, "remote", brokers)
    monkeypatch.setattr(found, "queues", queues)
    return found


def test_offsets_of_queues_that_a_topic_has_left_are_committed(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = discovery(brokers, monkeypatch, subscribe="t")
    found.ranges()
    found.commit({ROUTED: 5, LEFT: 9, GONE: 7})
    assert brokers.committed_offsets == {ROUTED: 5, LEFT: 9}
    assert found.committed([ROUTED, LEFT, GONE]) == {ROUTED: 3, LEFT: 3}
