"""Health checks and reflection, as probes and grpcurl ask."""

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from rockhopper.broker.store.files.errors import DiskFullError
from rockhopper.protocol.grpc_v2.probes import CHECK, HEALTH, INFOS, NOT_SERVING, SERVING
from tests.support.grpc_client import Answer, GrpcBroker, GrpcClient

SERVICE = "apache.rocketmq.v2.MessagingService"


async def check(client: GrpcClient, service: str = "") -> Answer:
    stream_id, answer = client.begin_other(HEALTH, CHECK)
    client.send(stream_id, CHECK.request(service=service), is_end=True)
    return await answer.ended()


@pytest.mark.parametrize("service", ["", SERVICE, HEALTH])
async def test_a_broker_that_takes_messages_is_healthy(client: GrpcClient, service: str) -> None:
    answer = await check(client, service)
    assert answer.status == "0"
    assert [reply.status for reply in answer.messages] == [SERVING]


async def test_one_that_takes_none_is_not(
    served: GrpcBroker, client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise DiskFullError("no room")

    monkeypatch.setattr(served.store, "check_writable", full)
    made = GrpcBroker.open_gateway
    made(served)
    answer = await check(GrpcClient(served.gateway))
    assert [reply.status for reply in answer.messages] == [NOT_SERVING]
    assert (await check(client)).status == "0"


async def test_a_service_that_is_not_here_is_not_found(client: GrpcClient) -> None:
    assert (await check(client, "payments")).status == "5"


@pytest.mark.parametrize("service", INFOS)
async def test_grpcurl_finds_services_and_what_they_take(client: GrpcClient, service: str) -> None:
    method = INFOS[service]
    stream_id, answer = client.begin_other(service, method)

    def ask(is_end: bool = False, **fields: Any) -> None:
        client.send(stream_id, method.request(**fields), is_end=is_end)

    ask(list_services="*")
    ask(file_containing_symbol=SERVICE)
    ask(file_containing_symbol=f"{HEALTH}")
    ask(file_by_filename="google/protobuf/duration.proto")
    ask(file_containing_symbol="no.such.Thing")
    ask(all_extension_numbers_of_type="apache.rocketmq.v2.Message", is_end=True)
    services, messaging, health, duration, missing, extensions = (await answer.ended()).messages
    assert answer.status == "0"
    assert {SERVICE, HEALTH, service} <= {
        each.name for each in services.list_services_response.service
    }
    names = [
        [FileDescriptorProto.FromString(data).name for data in each.file_descriptor_proto]
        for each in (
            messaging.file_descriptor_response,
            health.file_descriptor_response,
            duration.file_descriptor_response,
        )
    ]
    assert len(names[0]) > 2
    assert "google/protobuf/timestamp.proto" in names[0]
    assert names[1:] == [["grpc/health/v1.proto"], ["google/protobuf/duration.proto"]]
    assert (missing.error_response.error_code, extensions.error_response.error_code) == (5, 5)
    assert messaging.original_request.file_containing_symbol == SERVICE


async def test_grpcurls_request_that_names_nothing_is_answered(client: GrpcClient) -> None:
    method = next(iter(INFOS.values()))
    stream_id, answer = client.begin_other(next(iter(INFOS)), method)
    client.send_raw(stream_id, b"\0\0\0\0\0")
    (reply,) = (await answer.ended()).messages
    assert reply.error_response.error_code == 5
