"""Registrations: decoded in their turn and never by the loop, bounded, and gone with who goes."""

import asyncio
import json
import threading
import zlib
from collections.abc import Generator
from typing import Any

import pytest

from rockhopper.broker.name_server import registering
from rockhopper.broker.name_server.route_table import Accepted, Registration
from rockhopper.protocol.bodies.topics import RegisterBrokerBody
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.name_server import BODY, FIELDS, NameServer
from tests.support.peers import Peer

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC


async def test_a_registration_that_inflates_is_bounded_and_never_decoded_by_the_loop(
    alone: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    real = RegisterBrokerBody.decode_registration

    def decode(*args: Any, **more: Any) -> RegisterBrokerBody:
        threads.append(threading.get_ident())
        return real(*args, **more)

    monkeypatch.setattr(RegisterBrokerBody, "decode_registration", decode)
    bomb = zlib.compress(bytes(20 << 20))
    answer = await alone.ask_long(
        RequestCode.REGISTER_BROKER, FIELDS | {"compressed": "true"}, bomb
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "larger than 16777212 bytes when decompressed" in str(answer.remark)
    assert threading.get_ident() not in threads


def long_body(count: int) -> bytes:
    document = json.loads(BODY)
    table = document["topicConfigSerializeWrapper"]["topicConfigTable"]
    table |= {f"T{n}": {"readQueueNums": 4} for n in range(count)}
    return json.dumps(document).encode()


async def test_a_long_registration_is_decoded_in_its_turn_and_taken(alone: NameServer) -> None:
    first, second = Peer("10.0.0.2"), Peer("10.0.0.2")
    both = await asyncio.gather(
        alone.ask_long(RequestCode.REGISTER_BROKER, FIELDS, long_body(5000), peer=first),
        alone.ask_long(RequestCode.REGISTER_BROKER, FIELDS, long_body(1000), peer=second),
    )
    assert [answer.code for answer in both] == [0, 0]
    assert alone.ask(ROUTE, {"topic": "T4999"}).code == ResponseCode.SUCCESS


async def test_a_broker_that_goes_while_its_registration_is_decoded_is_not_kept(
    alone: NameServer,
) -> None:
    peer = Peer("10.0.0.2")
    request = Command(RequestCode.REGISTER_BROKER, 7, ext=FIELDS, body=long_body(1000))
    assert alone.dispatcher.dispatch(peer.connection, request) == b""
    peer.hang_up()
    await asyncio.gather(*alone.dispatcher.tasks)
    assert alone.routes.members("") == []


async def test_too_many_topics_are_refused(
    alone: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registering, "TOPICS_MAX", 1000)
    answer = await alone.ask_long(RequestCode.REGISTER_BROKER, FIELDS, long_body(1000))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "1002 topics; at most 1000" in str(answer.remark)


@pytest.mark.parametrize(
    "field", ["brokerName", "brokerAddr", "clusterName", "haServerAddr", "__ZONE_NAME"]
)
def test_a_name_of_endless_length_is_refused(alone: NameServer, field: str) -> None:
    answer = alone.register(**{field: "n" * 256})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "256 characters; at most 255" in str(answer.remark)
    assert alone.routes.members("") == []
    topic = BODY.replace(b"orders", b"n" * 256)
    assert "256 characters" in str(alone.ask(RequestCode.REGISTER_BROKER, FIELDS, topic).remark)


def test_a_single_topic_has_no_name_of_endless_length(alone: NameServer) -> None:
    alone.register()
    answer = alone.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "n" * 256}, b"{}")
    assert "256 characters; at most 255" in str(answer.remark)


def test_of_a_topic_is_kept_what_routes_show(
    alone: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[Registration] = []
    register_in_steps = alone.routes.register_in_steps

    def note(registration: Registration, *more: Any) -> Generator[None, None, Accepted | None]:
        taken.append(registration)
        return register_in_steps(registration, *more)

    monkeypatch.setattr(alone.routes, "register_in_steps", note)
    body = BODY.replace(b'"attributes":{}', b'"attributes":{"+a":"endless"}')
    body = body.replace(b'"topicName":"orders"', b'"topicName":"endless"')
    assert alone.ask(RequestCode.REGISTER_BROKER, FIELDS, body).code == ResponseCode.SUCCESS
    kept = taken[0].topics["orders"]
    assert (kept.name, kept.attributes, kept.write_queue_nums) == ("orders", {}, 4)


@pytest.mark.parametrize("code", [RequestCode.QUERY_DATA_VERSION, 217])
def test_a_body_that_nobody_needs_is_not_looked_at(alone: NameServer, code: int) -> None:
    answer = alone.ask(code, FIELDS | {"topic": "T"}, b"[" * 20_000)
    assert "20000 bytes; 16384 are allowed" in str(answer.remark)


async def test_a_broker_that_goes_while_its_registration_is_taken_is_asked_for_nothing(
    alone: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer("10.0.0.2")
    register_in_steps = alone.routes.register_in_steps

    def go_in_between(*given: Any) -> Generator[None, None, Accepted | None]:
        steps = register_in_steps(*given)
        yield next(steps)
        peer.hang_up()
        return (yield from steps)

    monkeypatch.setattr(alone.routes, "register_in_steps", go_in_between)
    fields = FIELDS | {"rockhopperCreates": "on-lookup"}
    request = Command(RequestCode.REGISTER_BROKER, 7, ext=fields, body=long_body(5000))
    assert alone.dispatcher.dispatch(peer.connection, request) == b""
    await asyncio.gather(*alone.dispatcher.tasks)
    assert alone.routes.members("") == []
    assert not alone.processors.sharing.may_create("new")


async def test_a_short_registration_waits_for_the_long_one_in_front_of_it(
    alone: NameServer,
) -> None:
    peer = Peer("10.0.0.2")
    for opaque, body in enumerate((long_body(5000), BODY)):
        request = Command(RequestCode.REGISTER_BROKER, opaque, ext=FIELDS, body=body)
        assert alone.dispatcher.dispatch(peer.connection, request) == b""
    await asyncio.gather(*alone.dispatcher.tasks)
    answers = FrameDecoder().feed(b"".join(peer.written))
    assert [decode_header(kind, head).opaque for kind, head, _ in answers] == [0, 1]
    assert alone.ask(ROUTE, {"topic": "T4999"}).code == ResponseCode.SUCCESS
