"""What a client may say of itself beside the rest."""

import pytest

from rockhopper.broker.gateways.grpc.activities.clients import check_client_properties
from rockhopper.broker.gateways.grpc.statuses import GrpcStatusError
from rockhopper.protocol.grpc_v2.codes import Code


def test_names_and_texts_are_fine() -> None:
    check_client_properties({})
    check_client_properties({f"a-b.c_{number}": "x" for number in range(32)})


@pytest.mark.parametrize(
    "pairs",
    [
        {f"n{number}": "" for number in range(33)},
        {"a": "x" * 257},
        {"1a": "x"},
        {"a" * 65: "x"},
        {"a b": "x"},
        {"RocketMQ.version": "x"},
        {f"n{number}": "x" * 256 for number in range(16)},
    ],
)
def test_what_is_too_much_is_refused(pairs: dict[str, str]) -> None:
    with pytest.raises(GrpcStatusError) as failure:
        check_client_properties(pairs)
    assert failure.value.code is Code.INVALID_CLIENT_PROPERTIES
