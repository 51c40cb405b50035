"""Telemetry, Heartbeat and NotifyClientTermination."""

from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.sessions import ClientSession
from rockhopper.protocol.grpc_v2.codes import Code
from tests.support.grpc_client import (
    CLIENT_ID,
    Answer,
    GrpcBroker,
    GrpcClient,
    request,
    settings_of_consumer,
    settings_of_producer,
)
from tests.support.peers import Clock


async def told(client: GrpcClient, command: Any, **fields: str) -> tuple[int, Answer]:
    """A Telemetry stream whose settings have been answered."""
    stream_id, telemetry = client.begin("Telemetry", **fields)
    client.send(stream_id, command)
    await telemetry.until(1)
    return stream_id, telemetry


def session_of(served: GrpcBroker) -> ClientSession:
    (session,) = served.gateway.sessions
    return session


async def test_the_stream_begins_before_anything_is_said(client: GrpcClient) -> None:
    _, telemetry = client.begin("Telemetry")
    await client.ask("QueryRoute", request("QueryRoute", topic="t"))
    assert telemetry.fields[":status"] == "200"
    assert not telemetry.is_ended


@pytest.mark.parametrize("client_type", [5, 6])
async def test_a_consumer_of_lite_topics_reads_what_is_missing(
    client: GrpcClient, client_type: int
) -> None:
    _, telemetry = await told(client, settings_of_consumer("g", "t", client_type=client_type))
    await telemetry.ended()
    sentence = "lite topics are not supported"
    assert sentence in telemetry.messages[0].status.message
    assert (telemetry.status, sentence in telemetry.fields["grpc-message"]) == ("12", True)
    beat = await client.ask("Heartbeat", request("Heartbeat", client_type=client_type))
    assert beat.status.code != Code.OK
    synced = await client.ask("SyncLiteSubscription", request("SyncLiteSubscription", group="g"))
    assert (synced.status.code, sentence in synced.status.message) == (Code.UNSUPPORTED, True)


async def test_a_producer_learns_how_to_send(client: GrpcClient) -> None:
    _, telemetry = await told(client, settings_of_producer("t"))
    settings = telemetry.messages[0].settings
    assert telemetry.messages[0].status.code == Code.OK
    assert settings.publishing.validate_message_type
    assert settings.publishing.max_body_size == 4 << 20
    assert settings.backoff_policy.max_attempts == 3
    assert not settings.metric.on
    assert not settings.metric.HasField("endpoints")


@pytest.mark.parametrize(
    ("language", "strategy"), [("JAVA", "customized_backoff"), ("HTTP", "exponential_backoff")]
)
async def test_a_consumer_learns_how_its_group_consumes(
    served: GrpcBroker, client: GrpcClient, language: str, strategy: str
) -> None:
    command = settings_of_consumer("g", "t", client_type=2)
    _, telemetry = await told(client, command, x_mq_language=language)
    settings = telemetry.messages[0].settings
    assert settings.subscription.receive_batch_size == 32
    assert not settings.subscription.fifo
    assert settings.backoff_policy.max_attempts == 17
    assert settings.backoff_policy.WhichOneof("strategy") == strategy
    group = served.kernel.consumers.get("g")
    assert group is not None
    assert group.client_ids() == [CLIENT_ID]
    assert list(group.subscriptions()) == ["t"]


@pytest.mark.parametrize(
    "change",
    [
        lambda settings: settings.ClearField("subscription"),
        lambda settings: settings.subscription.group.Clear(),
        lambda settings: settings.subscription.subscriptions.add().topic.Clear(),
        lambda settings: settings.client_properties.update({"rocketmq.x": "y"}),
    ],
)
async def test_wrong_settings_end_the_stream(client: GrpcClient, change: Any) -> None:
    command = settings_of_consumer("g", "t")
    change(command.settings)
    _, telemetry = await told(client, command)
    assert telemetry.status == "3"
    assert telemetry.fields["grpc-message"]


async def test_a_client_without_an_id_is_told_and_may_go_on(client: GrpcClient) -> None:
    stream_id, telemetry = client.begin("Telemetry", client_id=None)
    client.send(stream_id, settings_of_producer("t"))
    (told_it,) = await telemetry.until(1)
    assert told_it.status.code == Code.CLIENT_ID_REQUIRED
    assert not telemetry.is_ended


async def test_a_heartbeat_before_settings_asks_for_them(client: GrpcClient) -> None:
    reply = await client.ask("Heartbeat", request("Heartbeat", group="g", client_type=3))
    assert reply.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_who_beats_stays_and_who_is_silent_goes(
    served: GrpcBroker, client: GrpcClient, clock: Clock
) -> None:
    _, telemetry = await told(client, settings_of_consumer("g", "t"))
    beat = request("Heartbeat", group="g", client_type=3)
    clock.advance(100_000)
    assert (await client.ask("Heartbeat", beat)).status.code == Code.OK
    clock.advance(100_000)
    served.gateway.sessions.expire()
    assert len(served.gateway.sessions) == 1
    clock.advance(30_000)
    served.gateway.sessions.expire()
    assert len(served.gateway.sessions) == 0
    group = served.kernel.consumers.get("g")
    assert group is None or not group.members
    await telemetry.ended()


async def test_who_says_goodbye_is_gone(served: GrpcBroker, client: GrpcClient) -> None:
    await told(client, settings_of_producer("tx"))
    assert [each.client_id for each in served.kernel.producers.clients("tx")] == [CLIENT_ID]
    termination = request("NotifyClientTermination")
    assert (await client.ask("NotifyClientTermination", termination)).status.code == Code.OK
    assert served.kernel.producers.clients("tx") == []
    again = await client.ask("NotifyClientTermination", termination)
    assert again.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


async def test_a_client_may_come_by_another_connection(served: GrpcBroker) -> None:
    first, second = GrpcClient(served.gateway), GrpcClient(served.gateway)
    await told(first, settings_of_producer("tx"))
    session = session_of(served)
    _, newer = await told(second, settings_of_producer("tx"))
    assert session_of(served) is session
    first.lose()
    assert not session.writing_paused
    second.lose()
    assert session.writing_paused
    assert not session.closed
    assert not newer.is_ended


async def test_a_client_that_ends_its_stream_stays_known(
    served: GrpcBroker, client: GrpcClient
) -> None:
    stream_id, telemetry = await told(client, settings_of_producer("tx"))
    client.end(stream_id)
    await telemetry.ended()
    assert telemetry.status == "0"
    assert session_of(served).writing_paused
