"""Dead letters sent back by the bundled client: once each, whatever is cut off."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from rockhopper.broker import Broker
from rockhopper.client import (
    Admin,
    ClientStateError,
    MessageNotFoundError,
    RequestRefusedError,
    RouteNotFoundError,
)
from rockhopper.client.admin.dead_letters import DeadLetters
from rockhopper.client.admin.group_states import REQUEUE_GROUP
from tests.support.billing import AT_ONCE
from tests.support.dead_letters import fail_on_all, forge, send, take_all


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker.temporary(AT_ONCE) as broker:
        yield broker


async def test_a_requeue_that_was_killed_repeats_nothing(
    broker: Broker, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(broker, 4)
    await fail_on_all(broker, 4)

    async def killed(*_: object) -> None:
        raise RequestRefusedError(15, 1, "killed before the mark was moved", broker.address)

    with monkeypatch.context() as patched:
        patched.setattr(DeadLetters, "_note", killed)
        with pytest.raises(RequestRefusedError, match="killed"):
            _ = [each async for each in admin.dead_letters.requeue("billing", max_count=3)]
    assert broker.tables.offsets.get("%DLQ%billing", REQUEUE_GROUP, 0) is None
    again = [each async for each in admin.dead_letters.requeue("billing")]
    assert [each.receipt is None for each in again] == [True, True, True, False]
    assert len({each.message_id for each in await take_all(broker, 4)}) == 4


async def test_two_requeues_do_not_run_at_once(broker: Broker, admin: Admin) -> None:
    await send(broker, 2)
    await fail_on_all(broker, 2)
    async with Admin(broker.nameserver) as other:
        async with aclosing(admin.dead_letters.requeue("billing")) as requeues:
            await anext(requeues)
            with pytest.raises(ClientStateError, match="in progress"):
                await anext(other.dead_letters.requeue("billing"))
        assert [each async for each in other.dead_letters.requeue("billing")] != []


async def test_the_mark_stays_in_front_of_one_that_cannot_go(broker: Broker, admin: Admin) -> None:
    await send(broker, 1)
    await fail_on_all(broker, 1)
    await forge(broker, {})
    await forge(broker, {"RETRY_TOPIC": "orders"})
    for sent in ([True, False, True], [False, False]):
        tried = [each async for each in admin.dead_letters.requeue("billing", go_on=True)]
        assert [each.receipt is not None for each in tried] == sent
        assert [each.problem is not None for each in tried][-2:] == [True, False]
        assert broker.tables.offsets.get("%DLQ%billing", REQUEUE_GROUP, 0) == 1


async def test_groups_are_counted_with_what_waits(broker: Broker, admin: Admin) -> None:
    await send(broker, 3)
    await fail_on_all(broker, 3)
    before = await admin.dead_letters.count("billing")
    assert (before.count, before.waiting) == (3, 3)
    assert before.oldest_time_ms is not None
    async for _ in admin.dead_letters.requeue("billing", max_count=2):
        pass
    (after,) = await admin.dead_letters.counts()
    assert (after.group, after.count, after.waiting) == ("billing", 3, 1)
    waiting = [each async for each in admin.dead_letters.read("billing", only_waiting=True)]
    assert [each.is_requeued for each in waiting] == [False]
    assert (await admin.dead_letters.count("nobody")).count == 0


async def test_a_dry_run_sends_nothing_and_moves_no_mark(broker: Broker, admin: Admin) -> None:
    await send(broker, 2)
    await fail_on_all(broker, 2)
    dry = [each async for each in admin.dead_letters.requeue("billing", dry_run=True)]
    assert [(each.target, each.receipt) for each in dry] == [("orders", None)] * 2
    assert broker.tables.offsets.get("%DLQ%billing", REQUEUE_GROUP, 0) is None
    sent = [each async for each in admin.dead_letters.requeue("billing")]
    assert all(each.receipt is not None for each in sent)


async def test_one_dead_letter_is_sent_by_its_id_to_another_topic(
    broker: Broker, admin: Admin
) -> None:
    await send(broker, 2)
    await fail_on_all(broker, 2)
    await admin.create_topic("elsewhere", queues=1)
    letters = [each.message async for each in admin.dead_letters.read("billing")]
    chosen = letters[1].message_id
    requeue = admin.dead_letters.requeue("billing", message_id=chosen, to="elsewhere")
    (sent,) = [each async for each in requeue]
    assert (sent.letter.message.message_id, sent.target) == (chosen, "elsewhere")
    with pytest.raises(MessageNotFoundError, match="no dead letter of 'billing' has the id"):
        await anext(admin.dead_letters.requeue("billing", message_id="0" * 32))
    with pytest.raises(RouteNotFoundError, match="'nobody' has no dead letters"):
        await anext(admin.dead_letters.requeue("nobody"))


async def test_dead_letters_with_odd_or_long_properties_are_sent(
    broker: Broker, admin: Admin
) -> None:
    await send(broker, 1)
    long = {"RETRY_TOPIC": "orders", "x": "y" * 32_600}
    for properties in ({"RETRY_TOPIC": "orders", "x": "a\x01b"}, long):
        await forge(broker, properties)
    sent = [each async for each in admin.dead_letters.requeue("billing", go_on=True)]
    assert [each.problem for each in sent] == [None, None]
    found = {each.properties.get("x") for each in await take_all(broker, 3)}
    assert found == {None, "a\x01b", long["x"]}
