"""Long bodies are decoded in threads, and served one at a time for each connection."""

import asyncio
import itertools
import json

from rockhopper.broker.server.remoting.dispatcher import Request, Response
from rockhopper.broker.server.remoting.json_bodies import SHORT_BODY_SIZE_BYTES_MAX, with_body
from rockhopper.protocol.bodies.topics import TopicList
from rockhopper.protocol.command import Command
from tests.support.peers import Peer


async def test_long_bodies_of_one_connection_are_served_in_order_and_one_in_a_turn() -> None:
    peer, turn, served = Peer(), itertools.count(), []
    counting = True
    now = 0

    async def count_turns() -> None:
        nonlocal now
        while counting:
            now = next(turn)
            await asyncio.sleep(0)

    def serve(request: Request, _body: TopicList) -> Response:
        served.append((request.opaque, now))
        return Response()

    body = json.dumps({"topicList": ["T" * SHORT_BODY_SIZE_BYTES_MAX]}).encode()
    counter = asyncio.create_task(count_turns())
    answers = [
        with_body(Request(peer.connection, Command(34, opaque, body=body)), TopicList, serve)
        for opaque in range(20)
    ]
    await asyncio.gather(*answers)  # type: ignore[arg-type]
    counting = False
    await counter
    assert [opaque for opaque, _ in served] == list(range(20))
    assert len({turn for _, turn in served}) == 20
