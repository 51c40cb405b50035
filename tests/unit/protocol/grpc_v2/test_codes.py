"""Codes: what is the client's fault and what is not can be told by the number."""

from rockhopper.protocol.grpc_v2.codes import Code, GrpcStatus


def test_client_errors_stand_below_server_errors() -> None:
    assert Code.BAD_REQUEST < Code.MESSAGE_PROPERTIES_TOO_LARGE < Code.INTERNAL_ERROR


def test_statuses_of_grpc_have_its_numbers() -> None:
    assert (GrpcStatus.UNIMPLEMENTED, GrpcStatus.RESOURCE_EXHAUSTED) == (12, 8)
