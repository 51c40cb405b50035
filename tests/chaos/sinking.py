"""A job that publishes batches: it stages each in two parts, then publishes it as a whole."""

import itertools
import random
from collections.abc import Awaitable, Callable

from rockhopper.protocol.bodies.sinks import SinkPart, encode_sink_body
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.chaos import topics
from tests.chaos.ledger import Fact, Kind, Ledger, Publication
from tests.support.raw_peer import RawPeer, request

PART_MAX = 12


async def ask_sink(
    peer: RawPeer, code: RequestCode, body: bytes = b"", **fields: object
) -> Command:
    """Send one request about the sink. Raise OSError if it is refused."""
    peer.send(request(code, {"sinkId": topics.SINK, **fields}, body))
    answer = await peer.answer()
    if answer.code != ResponseCode.SUCCESS:
        raise OSError(f"{code.name} was refused: {answer.remark}")
    return answer


async def last_batch_id(peer: RawPeer) -> int:
    """Return the last batch that the broker knows as published, -1 for none."""
    answer = await ask_sink(peer, RequestCode.SINK_STATUS)
    return int((answer.ext or {})["lastBatchId"])


async def publish_batches(
    address: str, ledger: Ledger, dice: random.Random, rest: Callable[[], Awaitable[None]]
) -> None:
    """Publish one batch after another, until something fails."""
    async with RawPeer(address) as peer:
        known = await last_batch_id(peer)
        await _publish_again(peer, ledger, known)
        for batch_id in itertools.count(known + 1):
            await ask_sink(peer, RequestCode.SINK_ABORT, batchId=batch_id)
            await _publish(peer, ledger, dice, batch_id)
            await rest()


async def _publish(peer: RawPeer, ledger: Ledger, dice: random.Random, batch_id: int) -> None:
    name = ledger.body("sink batch").split(b" ")[2].decode()
    facts: list[Fact] = []
    parts: dict[str, int] = {}
    for part in ("p0", "p1"):
        bodies = [ledger.body(Kind.SUNK) for _ in range(dice.randrange(1, PART_MAX))]
        messages = [topics.sink_message(body, dice.randrange(topics.QUEUES)) for body in bodies]
        facts += [
            ledger.expect(topics.SUNK, Kind.SUNK, body, batch=f"sink batch {name}")
            for body in bodies
        ]
        parts[part] = len(bodies)
        await ask_sink(
            peer,
            RequestCode.SINK_STAGE,
            encode_sink_body(messages),
            batchId=batch_id,
            part=part,
            sequence=0,
        )
    ledger.about_to("publish")
    answer = await ask_sink(peer, RequestCode.SINK_PUBLISH, _parts(parts), batchId=batch_id)
    if (answer.ext or {}).get("repeated") == "true":
        return  # an earlier session's batch was published instead of these
    ledger.acknowledged(*facts)
    ledger.published.append(Publication(batch_id, parts, ledger.now_s()))


async def _publish_again(peer: RawPeer, ledger: Ledger, known: int) -> None:
    """Check that an acknowledged batch is answered as a repeat, whatever happened to the broker."""
    if not ledger.published or ledger.published[-1].batch_id != known:
        return
    last = ledger.published[-1]
    answer = await ask_sink(
        peer, RequestCode.SINK_PUBLISH, _parts(last.parts), batchId=last.batch_id
    )
    if (answer.ext or {}).get("repeated") != "true":
        ledger.problems.append(f"batch {last.batch_id} of the sink was published twice")


def _parts(parts: dict[str, int]) -> bytes:
    return encode_sink_body([SinkPart(name, count) for name, count in parts.items()])
