"""One connection of a crowd, with one plain send in flight.

The broker serves what a crowd sends in shared turns: when the fault comes, the requests of many
connections are in one compiled call, one write to the log and one sync.
"""

import random

from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.chaos import topics
from tests.chaos.ledger import Kind, Ledger
from tests.support.direct import short_send_fields
from tests.support.raw_peer import RawPeer

CONNECTIONS = 100


async def send_one_by_one(address: str, ledger: Ledger, dice: random.Random) -> None:
    """Send one message after the other, until something fails."""
    async with RawPeer(address) as peer:
        while True:
            fact = ledger.expect(topics.CROWDED, Kind.PLAIN)
            queue_id = dice.randrange(topics.QUEUES)
            fields = short_send_fields(fact.topic, queue_id, f"KEYS\x01{fact.kind.name}\x02")
            asked_s = ledger.now_s()
            answer = await peer.ask(RequestCode.SEND_MESSAGE_V2, fields, fact.body)
            if answer.code != ResponseCode.SUCCESS:
                raise OSError(f"the broker refused a send: {answer.remark}")
            ledger.acknowledged(fact)
            ledger.placed(fact, queue_id, int((answer.ext or {})["queueOffset"]), asked_s)
