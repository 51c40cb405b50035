"""A consumer that sends messages back, to be retried or directly to the dead letters."""

import random
from collections.abc import Awaitable, Callable

from rockhopper.client.receipts import SendReceipt
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.message_ids import decode_offset_message_id
from tests.chaos import topics
from tests.chaos.ledger import Fact, Kind, Ledger
from tests.support.raw_peer import RawPeer


async def send_back(
    address: str,
    ledger: Ledger,
    send: Callable[[Fact], Awaitable[SendReceipt]],
    dice: random.Random,
    rest: Callable[[], Awaitable[None]],
) -> None:
    """Send messages and send them back, until something fails."""
    async with RawPeer(address) as peer:
        while True:
            fact = ledger.expect(topics.RETURNED, Kind.PLAIN)
            receipt = await send(fact)
            is_dead = dice.random() < 0.5
            copy = ledger.expect(
                topics.DEAD if is_dead else topics.RETRY,
                Kind.DEAD if is_dead else Kind.SENT_BACK,
                fact.body,
            )
            fields = {
                "offset": str(decode_offset_message_id(receipt.offset_message_id)[2]),
                "group": topics.RETURNERS,
                "delayLevel": "-1" if is_dead else "1",
                "originMsgId": receipt.message_id,
                "originTopic": topics.RETURNED,
                "unitMode": "false",
                "maxReconsumeTimes": "16",
            }
            answer = await peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
            if answer.code != ResponseCode.SUCCESS:
                raise OSError(f"the message was not taken back: {answer.remark}")
            ledger.acknowledged(copy)
            await rest()
