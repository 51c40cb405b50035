"""Receipt handles, and the renewal of those that a client leaves to the broker."""

import errno
from typing import Any

import pytest

from rockhopper.broker.features.pop.grpc.half import PopGrpc
from rockhopper.broker.features.pop.grpc.handles import (
    ABANDONED_INVISIBLE_MS,
    RENEWED_BEFORE_MS,
    RENEWED_FOR_MS_MAX,
    Handles,
)
from rockhopper.broker.features.pop.lanes import InFlight
from rockhopper.protocol.grpc_v2.codes import Code
from tests.support.features import pop_of
from tests.support.grpc_client import (
    GrpcBroker,
    GrpcClient,
    receiving,
    request,
    settings_of_consumer,
)
from tests.support.peers import Clock


def handles_of(served: GrpcBroker) -> Handles:
    half = served.gateway.halves["pop"]
    assert isinstance(half, PopGrpc)
    return half.handles


@pytest.fixture
async def handle(served: GrpcBroker, client: GrpcClient) -> str:
    """The handle of a message that a push consumer works on."""
    stream_id, telemetry = client.begin("Telemetry")
    client.send(stream_id, settings_of_consumer("g", "t", client_type=2))
    await telemetry.until(1)
    served.put("t", b"long work")
    made = receiving("t", invisible_ms=0, auto_renew=True)
    answer = await client.ask_for("ReceiveMessage", made).ended()
    return str(answer.messages[1].message.system_properties.receipt_handle)


def in_flight(served: GrpcBroker) -> InFlight:
    lane = pop_of(served).lanes.get("g", "t", 0)
    assert lane is not None
    entry: InFlight = lane.entries[0]
    return entry


def pass_time(served: GrpcBroker, clock: Clock, ms: int) -> None:
    """Let time pass, and what is due be renewed."""
    clock.advance(ms)
    handles_of(served).look()


def acknowledging(handle: str) -> Any:
    made = request("AckMessage", topic="t", group="g")
    made.entries.add(message_id="ID", receipt_handle=handle)
    return made


async def test_a_message_that_is_worked_on_stays_invisible(
    served: GrpcBroker, client: GrpcClient, clock: Clock, handle: str
) -> None:
    for minutes in (1, 3, 5, 10, 30, 60):
        before_ms = in_flight(served).visible_ms
        pass_time(served, clock, before_ms - clock() - RENEWED_BEFORE_MS - 1)
        assert in_flight(served).visible_ms == before_ms
        pass_time(served, clock, 1)
        assert in_flight(served).visible_ms == clock() + minutes * 60_000
    reply = await client.ask("AckMessage", acknowledging(handle))
    assert reply.status.code == Code.OK
    assert len(handles_of(served)) == 0


async def test_nobody_works_on_a_message_for_ever(
    served: GrpcBroker, clock: Clock, handle: str
) -> None:
    begun_ms = clock()
    while len(handles_of(served)):
        pass_time(served, clock, in_flight(served).visible_ms - clock() - RENEWED_BEFORE_MS)
        assert clock() - begun_ms < 2 * RENEWED_FOR_MS_MAX
    assert in_flight(served).visible_ms - clock() <= 10_000


async def test_messages_of_a_client_that_goes_come_back_soon(
    served: GrpcBroker, client: GrpcClient, clock: Clock, handle: str
) -> None:
    await client.ask("NotifyClientTermination", request("NotifyClientTermination", group="g"))
    assert in_flight(served).visible_ms <= clock() + ABANDONED_INVISIBLE_MS + 1
    assert len(handles_of(served)) == 0


async def test_what_is_put_off_by_its_client_is_renewed_no_more(
    served: GrpcBroker, client: GrpcClient, clock: Clock, handle: str
) -> None:
    pass_time(served, clock, 51_000)
    made = request(
        "ChangeInvisibleDuration",
        topic="t",
        group="g",
        receipt_handle=handle,
        invisible_duration_ms=15_000,
    )
    reply = await client.ask("ChangeInvisibleDuration", made)
    assert reply.status.code == Code.OK
    assert len(handles_of(served)) == 0
    pass_time(served, clock, 15_000)
    assert in_flight(served).visible_ms <= clock()


async def test_a_message_that_cannot_be_acknowledged_now_is_still_renewed(
    served: GrpcBroker,
    client: GrpcClient,
    clock: Clock,
    handle: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = pop_of(served).lanes.journal

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal, "append", fail)
        for ask in ("AckMessage", "ChangeInvisibleDuration"):
            made = (
                acknowledging(handle)
                if ask == "AckMessage"
                else request(ask, topic="t", group="g", receipt_handle=handle)
            )
            assert (await client.ask(ask, made)).status.code != Code.OK
    pass_time(served, clock, in_flight(served).visible_ms - clock() - RENEWED_BEFORE_MS)
    assert in_flight(served).visible_ms == clock() + 60_000
    reply = await client.ask("AckMessage", acknowledging(handle))
    assert reply.status.code == Code.OK
    assert len(handles_of(served)) == 0


async def test_an_acknowledgement_that_is_owed_when_its_client_goes_is_written(
    served: GrpcBroker, client: GrpcClient, handle: str
) -> None:
    handles = handles_of(served)
    meant = handles.settle(handle, "g", "t")
    await client.ask("NotifyClientTermination", request("NotifyClientTermination", group="g"))
    assert handles.ack([meant]) == [None]
    lane = pop_of(served).lanes.get("g", "t", 0)
    assert lane is not None
    assert not lane.entries


async def test_who_is_not_there_is_not_waited_for(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    """A client that has sent no settings has no session that could end."""
    served.put("t")
    made = receiving("t", invisible_ms=0, auto_renew=True)
    await client.ask_for("ReceiveMessage", made).ended()
    assert len(handles_of(served)) == 0
    assert in_flight(served).visible_ms == clock() + 60_000
