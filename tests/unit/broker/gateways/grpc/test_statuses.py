"""What clients are told of errors."""

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.gateways.grpc.statuses import (
    REFUSAL_CODES,
    GrpcStatusError,
    build_unconfirmed_status,
    status_of,
)
from rockhopper.broker.store.files.errors import (
    DiskFullError,
    NotReplicatedError,
    RecordTooLargeError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.users import errors
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.grpc_v2.codes import Code


def test_every_refusal_has_a_code() -> None:
    kinds = {errors.Refusal, *errors.Refusal.__subclasses__()} - {GrpcStatusError}
    assert kinds <= REFUSAL_CODES.keys()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (GrpcStatusError(Code.ILLEGAL_TOPIC, "no"), Code.ILLEGAL_TOPIC),
        (errors.TopicNotFound("no"), Code.TOPIC_NOT_FOUND),
        (errors.NoPermission("no"), Code.FORBIDDEN),
        (RecordTooLargeError("no"), Code.MESSAGE_BODY_TOO_LARGE),
        (StoreBusyError("no"), Code.TOO_MANY_REQUESTS),
        (DiskFullError("no"), Code.INTERNAL_SERVER_ERROR),
        (OSError(5, "no"), Code.INTERNAL_SERVER_ERROR),
        (ProtocolError("no"), Code.BAD_REQUEST),
    ],
)
def test_an_error_has_its_code_and_its_words(error: Exception, code: Code) -> None:
    found = status_of(error)
    assert found.code == code
    assert "no" in found.message


def test_our_mistakes_are_logged() -> None:
    with capture_logs() as entries:
        found = status_of(KeyError("x"))
    assert found.code == Code.INTERNAL_SERVER_ERROR
    assert [entry["event"] for entry in entries] == ["call failed"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreFailedError("no"), Code.INTERNAL_SERVER_ERROR),
        (NotReplicatedError("no"), Code.SLAVE_PERSISTENCE_TIMEOUT),
        (StoreError("no"), Code.MASTER_PERSISTENCE_TIMEOUT),
    ],
)
def test_what_is_stored_but_not_safe_is_told_apart(error: StoreError, code: Code) -> None:
    assert build_unconfirmed_status(error).code == code


def test_a_clients_long_value_is_not_sent_back_whole() -> None:
    assert len(status_of(errors.TopicNotFound(f"topic[{'x' * 10_000}] not exist")).message) < 1000
