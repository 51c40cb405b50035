"""What is read back from a real broker shows a message that it does not have."""

import random

from rockhopper.broker import Broker
from rockhopper.client import Message, Producer
from tests.chaos import topics
from tests.chaos.ledger import Fact, Kind, Ledger
from tests.chaos.outcome import outcome_of
from tests.chaos.reading import read_back
from tests.chaos.verdict import judge
from tests.support.features import needs


async def send(producer: Producer, ledger: Ledger, topic: str, kind: Kind) -> Fact:
    fact = ledger.expect(topic, kind)
    await producer.send(Message(topic, fact.body))
    ledger.acknowledged(fact)
    return fact


@needs("pop")
async def test_a_message_that_the_broker_does_not_have_is_reported() -> None:
    ledger = Ledger(random.Random(1))
    async with Broker.temporary({"maxHashSlotNum": "50"}) as broker:
        await topics.create_topics(broker.nameserver)
        async with Producer(broker.nameserver) as producer:
            await send(producer, ledger, topics.PLAIN, Kind.PLAIN)
            parcel = await send(producer, ledger, topics.PARCELS, Kind.POPPED)
            found = await read_back(broker.address, ledger, marks=False)
            assert outcome_of("kill", 1, judge(ledger, found), may_repeat=False).is_good
            assert found.popped == {parcel.body: 1}
            dropped = ledger.expect(topics.PLAIN, Kind.PLAIN)
            ledger.acknowledged(dropped)
            await producer.send(Message(topics.PLAIN, b"of nobody"))
            parcel.settling_s = 0.0
            found = await read_back(broker.address, ledger, marks=False)
        verdict = judge(ledger, found)
    assert verdict.lost == [dropped]
    assert "nobody sent" in verdict.wrong[0]
