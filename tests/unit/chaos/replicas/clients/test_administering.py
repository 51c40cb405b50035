"""What is known of a topic is what was answered last; what was not answered is not known."""

import random
from typing import Any

import pytest

from rockhopper.client import BrokerUnreachableError
from tests.chaos.ledger import Ledger
from tests.chaos.replicas.clients.administering import MOST_QUEUES, Administering


class Admin:
    """Changes topics, or does not answer."""

    def __init__(self) -> None:
        self.is_silent = False
        self.asked: list[tuple[str, str, int]] = []

    async def create_topic(self, name: str, *, queues: int) -> list[str]:
        return self._answer("create", name, queues)

    async def delete_topic(self, name: str) -> list[str]:
        return self._answer("delete", name, 0)

    def _answer(self, *asked: Any) -> list[str]:
        if self.is_silent:
            raise BrokerUnreachableError("silent")
        self.asked.append(asked)
        return ["broker-a"]


@pytest.fixture
def admin() -> Admin:
    return Admin()


@pytest.fixture
def administering(admin: Admin) -> Administering:
    made = Administering("", Ledger(), random.Random(1))
    made.admin = admin  # type: ignore[assignment]
    return made


async def test_a_topic_grows_and_is_deleted(administering: Administering, admin: Admin) -> None:
    await administering.change_topic()
    assert admin.asked == []
    await administering.create_topic()
    (name,) = administering.records.topics
    for queues in (*range(2, MOST_QUEUES + 1), None):
        await administering.change_topic()
        assert administering.records.topics == {name: queues}
    await administering.change_topic()
    assert admin.asked[-1] == ("delete", name, 0)


async def test_what_was_not_answered_is_not_known(
    administering: Administering, admin: Admin
) -> None:
    await administering.create_topic()
    admin.is_silent = True
    with pytest.raises(BrokerUnreachableError):
        await administering.change_topic()
    assert administering.records.topics == {}
