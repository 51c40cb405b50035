"""Health checks and reflection, open to every caller: for probes and grpcurl.

They reveal only whether the broker accepts messages, and messaging.proto: no topic, no client.
"""

from collections.abc import Callable
from typing import Any

from rockhopper.broker.gateways.grpc.call import Call, Rpc
from rockhopper.broker.store.files.errors import StoreError
from rockhopper.protocol.grpc_v2.codes import GrpcStatus
from rockhopper.protocol.grpc_v2.probes import (
    CHECK,
    HEALTH,
    INFOS,
    NOT_SERVING,
    SERVICES,
    SERVING,
    files_of,
)


def probes(check_writable: Callable[[], None]) -> dict[str, Rpc]:
    """Return the RPCs by path.

    *check_writable* raises StoreError while no messages are accepted.
    """

    def check(call: Call, request: Any) -> None:
        if request.service and request.service not in SERVICES:
            call.connection.fail(call, GrpcStatus.NOT_FOUND, "unknown service")
            return
        try:
            check_writable()
            call.write(CHECK.reply(status=SERVING))
        except StoreError:
            call.write(CHECK.reply(status=NOT_SERVING))
        call.end_call()

    found = {f"/{HEALTH}/{CHECK.name}": Rpc(CHECK, check, None)}
    for service, method in INFOS.items():

        def describe(call: Call, request: Any, reply: Any = method.reply) -> None:
            call.write(_describe(reply(original_request=request), request))

        found[f"/{service}/{method.name}"] = Rpc(method, describe, None)
    return found


def _describe(reply: Any, request: Any) -> Any:
    reply.valid_host = request.host
    if request.HasField("list_services"):
        for name in SERVICES:
            reply.list_services_response.service.add(name=name)
        return reply
    try:
        if request.HasField("file_by_filename"):
            files = files_of(name=request.file_by_filename)
        else:
            files = files_of(symbol=request.file_containing_symbol)
    except KeyError:
        reply.error_response.error_code = int(GrpcStatus.NOT_FOUND)
        reply.error_response.error_message = "unknown service"
        return reply
    reply.file_descriptor_response.file_descriptor_proto.extend(files)
    return reply
