"""Each test gets a broker that is as good as new; NAMESRV_ADDR names it."""

import asyncio

import pytest
from shop.orders import TOPIC, announce, book

from rockhopper import Admin, Producer


def test_an_order_is_booked(rockhopper):
    ledger = {}

    async def scenario():
        async with Producer() as producer:
            await announce(producer, 1, 100)
            await announce(producer, 2, 250)
        async with asyncio.timeout(10):
            await book(ledger.__setitem__, until=2)

    asyncio.run(scenario())
    assert ledger == {1: 100, 2: 250}


def test_nothing_is_left_of_other_tests(rockhopper):
    async def topics():
        async with Admin(rockhopper.nameserver) as admin:
            return await admin.topics()

    assert TOPIC not in asyncio.run(topics())


def test_an_order_that_makes_no_sense_goes_to_the_dead_letters(rockhopper):
    ledger = {}

    async def scenario():
        async with Producer() as producer:
            wrong = await announce(producer, 1, -5)
            await announce(producer, 2, 250)
        async with asyncio.timeout(10):
            await book(ledger.__setitem__, until=2)
        async with Admin() as admin:
            letters = [each.message.message_id async for each in admin.dead_letters.read("booking")]
        return wrong, letters

    wrong, letters = asyncio.run(scenario())
    assert ledger == {2: 250}
    assert letters == [wrong]


@pytest.mark.rockhopper(settings={"autoCreateTopic": "off"})
def test_a_topic_must_be_created_in_production(rockhopper):
    async def scenario():
        async with Producer() as producer:
            await announce(producer, 1, 100)

    with pytest.raises(Exception, match="topic create"):
        asyncio.run(scenario())


def test_the_broker_is_emptied_in_the_middle_of_a_test(rockhopper):
    async def scenario():
        async with Producer() as producer:
            await announce(producer, 1, 100)
            rockhopper.purge()
            await announce(producer, 2, 250)
        async with Admin() as admin:
            return sum([each.count for each in await admin.ranges(TOPIC)])

    assert asyncio.run(scenario()) == 1
